//! What this process may use: memory and physical cores.
//!
//! The operating system's numbers describe the whole machine; a container or a
//! service is often given less. Everything here takes the smaller of the two:
//! the machine's memory and the limits of each enclosing cgroup (version 1 or
//! 2), the affinity mask's cores and the cgroup's CPU quota.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The resources of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Memory that the machine or the tightest cgroup allows, in bytes.
    pub memory_bytes: u64,
    /// Physical cores that the affinity mask and the CPU quota allow, at least 1.
    /// Two hardware threads of one core count once: they share its arithmetic.
    pub physical_cores: usize,
}

/// Assumed where `/proc/meminfo` cannot be read.
const MEMORY_BYTES_FALLBACK: u64 = 2 << 30;

impl Machine {
    /// Reads the facts of this process from `/proc` and `/sys`. Never fails: what
    /// cannot be read is replaced by a careful guess.
    pub fn detect() -> Self {
        Self::read(Path::new("/"))
    }

    fn read(root: &Path) -> Self {
        let groups = Cgroups::read(root);
        let machine = meminfo_total(&read_text(&root.join("proc/meminfo")));
        let memory_bytes =
            groups.memory_limits().chain(machine).min().unwrap_or(MEMORY_BYTES_FALLBACK);
        let allowed = allowed_cpus(&read_text(&root.join("proc/self/status")));
        let cores = physical_cores(root, &allowed);
        let physical_cores = groups.cpu_quotas().chain([cores]).min().unwrap_or(1).max(1);
        Machine { memory_bytes, physical_cores }
    }
}

fn read_text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The processors of the affinity mask, from `/proc/self/status`.
fn allowed_cpus(status: &str) -> Vec<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpus = list.map(|list| cpu_list(list.trim())).unwrap_or_default();
    if !cpus.is_empty() {
        return cpus;
    }
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    (0..count).collect()
}

/// Parses the kernel's list format, such as `0-3,8`. More than 65,536 processors
/// are not believed.
fn cpu_list(list: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<usize>()) else {
            continue;
        };
        if last < 65_536 {
            cpus.extend(first..=last);
        }
    }
    cpus
}

/// Counts the distinct cores behind `cpus`; a processor whose topology is hidden
/// counts as a core of its own.
fn physical_cores(root: &Path, cpus: &[usize]) -> usize {
    let cores: BTreeSet<String> = cpus
        .iter()
        .map(|cpu| {
            let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            let package = read_text(&folder.join("physical_package_id"));
            let die = read_text(&folder.join("die_id"));
            match read_text(&folder.join("core_id")).trim() {
                "" => format!("cpu {cpu}"),
                core => format!("{}/{}/{core}", package.trim(), die.trim()),
            }
        })
        .collect();
    cores.len()
}

/// The folders of the cgroups that enclose this process, innermost first.
struct Cgroups {
    unified: Vec<PathBuf>,
    memory: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
}

impl Cgroups {
    fn read(root: &Path) -> Self {
        let mount = root.join("sys/fs/cgroup");
        let mut groups = Cgroups { unified: vec![], memory: vec![], cpu: vec![] };
        for line in read_text(&root.join("proc/self/cgroup")).lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let path = Path::new(path.trim_start_matches('/'));
            let chain = |base: PathBuf| path.ancestors().map(|p| base.join(p)).collect();
            if controllers.is_empty() {
                groups.unified = chain(mount.clone());
            }
            for controller in controllers.split(',') {
                match controller {
                    "memory" => groups.memory = chain(mount.join("memory")),
                    "cpu" => groups.cpu = chain(mount.join("cpu")),
                    _ => {}
                }
            }
        }
        groups
    }

    fn memory_limits(&self) -> impl Iterator<Item = u64> {
        let unified = self.unified.iter().map(|folder| folder.join("memory.max"));
        let version_1 = self.memory.iter().map(|folder| folder.join("memory.limit_in_bytes"));
        unified.chain(version_1).filter_map(|file| read_text(&file).trim().parse().ok())
    }

    /// Quotas in whole cores, rounded up: `cpu.max` is "quota period" in microseconds.
    fn cpu_quotas(&self) -> impl Iterator<Item = usize> {
        let unified = self.unified.iter().map(|folder| read_text(&folder.join("cpu.max")));
        let version_1 = self.cpu.iter().map(|folder| {
            let quota = read_text(&folder.join("cpu.cfs_quota_us"));
            let period = read_text(&folder.join("cpu.cfs_period_us"));
            format!("{} {}", quota.trim(), period.trim())
        });
        unified.chain(version_1).filter_map(|text| {
            let (quota, period) = text.trim().split_once(' ')?;
            let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
            (period > 0).then(|| quota.div_ceil(period).max(1) as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn hyperthreads_count_once_and_the_tightest_cgroup_wins() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/meminfo", "MemTotal:       16000 kB\nMemFree: 1 kB\n");
        write(root, "proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2,5\n");
        write(root, "proc/self/cgroup", "0::/outer/inner\n");
        for (cpu, core) in [(0, 0), (1, 0), (2, 1), (5, 2)] {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            write(root, &format!("{topology}/physical_package_id"), "0\n");
            write(root, &format!("{topology}/core_id"), &format!("{core}\n"));
        }
        let machine = Machine::read(root);
        assert_eq!(machine, Machine { memory_bytes: 16_384_000, physical_cores: 3 });

        write(root, "sys/fs/cgroup/outer/memory.max", "1000000\n");
        write(root, "sys/fs/cgroup/outer/inner/memory.max", "max\n");
        write(root, "sys/fs/cgroup/outer/inner/cpu.max", "150000 100000\n");
        let machine = Machine::read(root);
        assert_eq!(machine, Machine { memory_bytes: 1_000_000, physical_cores: 2 });
    }

    #[test]
    fn version_1_cgroups_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/meminfo", "MemTotal: 16000 kB\n");
        write(root, "proc/self/status", "Cpus_allowed_list:\t0-7\n");
        write(root, "proc/self/cgroup", "4:memory:/box\n1:cpu,cpuacct:/box\n");
        write(root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4096\n");
        write(root, "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "400000\n");
        write(root, "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
        assert_eq!(Machine::read(root), Machine { memory_bytes: 4096, physical_cores: 4 });
    }

    #[test]
    fn an_empty_machine_still_has_one_core() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::read(folder.path());
        assert_eq!(machine.memory_bytes, MEMORY_BYTES_FALLBACK);
        assert!(machine.physical_cores >= 1);
        assert!(Machine::detect().memory_bytes > 0);
    }
}
