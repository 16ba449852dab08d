//! The KV store through its public interface.

use half::f16;
use kernels::{Isa, KvError, KvGeometry, KvStore, KvType, RowPlace, Strided, Team, store_kv};
use proptest::prelude::*;

fn geometry(kv_type: KvType) -> KvGeometry {
    KvGeometry { layers: 2, kv_heads: 3, head_dim: 24, kv_type }
}

/// Stores one row of the number `x` in both layers.
fn store_row(store: &mut KvStore, pages: &[u32], position: usize, x: f32) -> Result<(), KvError> {
    let team = Team::new(1).expect("one thread");
    let row = [x; 72];
    let view = Strided::whole(&row, 72);
    for layer in 0..2 {
        store_kv(&team, store, layer, view, view, &[RowPlace { pages, position }])?;
    }
    Ok(())
}

#[test]
fn pages_are_zeroed_copied_and_released() {
    for kv_type in [KvType::F16, KvType::F32] {
        let mut store = KvStore::new(geometry(kv_type), 4).unwrap();
        assert!(store.page_bytes(3).iter().all(|&byte| byte == 0));
        store_row(&mut store, &[2, 1], 17, 0.5).unwrap();
        assert_eq!(store.read(1, 1, 2, 1), (vec![0.5; 24], vec![0.5; 24]));
        assert_eq!(store.read(1, 1, 2, 0), (vec![0.0; 24], vec![0.0; 24]));
        assert!(store.page_bytes(2).iter().all(|&byte| byte == 0));

        store.copy_page(1, 3);
        assert_eq!(store.page_bytes(1), store.page_bytes(3));
        store_row(&mut store, &[2, 1], 18, 0.25).unwrap();
        assert_eq!(store.read(3, 0, 0, 2), (vec![0.0; 24], vec![0.0; 24]));

        store.zero_page(1);
        assert!(store.page_bytes(1).iter().all(|&byte| byte == 0));
        store.release_page(3);
        assert!(store.page_bytes(3).iter().all(|&byte| byte == 0));
        store_row(&mut store, &[3], 0, 4.0).unwrap();
        store.copy_page(2, 3);
        assert!(store.page_bytes(3).iter().all(|&byte| byte == 0));
    }
}

#[test]
fn restored_bytes_are_what_was_stored() {
    let mut store = KvStore::new(geometry(KvType::F16), 2).unwrap();
    store_row(&mut store, &[0], 5, 1.5).unwrap();
    let bytes = store.page_bytes(0).to_vec();
    assert_eq!(bytes.len(), store.geometry().page_bytes());
    store.page_bytes_mut(1).copy_from_slice(&bytes);
    assert_eq!(store.read(1, 0, 1, 5), (vec![1.5; 24], vec![1.5; 24]));
}

#[test]
fn impossible_stores_and_places_are_refused() {
    let no_heads = KvGeometry { kv_heads: 0, ..geometry(KvType::F16) };
    assert!(matches!(KvStore::new(no_heads, 1), Err(KvError::Geometry(_))));
    assert!(matches!(KvStore::new(geometry(KvType::F16), 0), Err(KvError::Pages(0))));
    let many = KvStore::new(geometry(KvType::F16), usize::MAX);
    assert!(matches!(many, Err(KvError::Pages(_))));
    let mut store = KvStore::new(geometry(KvType::F16), 2).unwrap();
    let beyond = store_row(&mut store, &[0, 1], 32, 1.0);
    assert!(matches!(beyond, Err(KvError::Position { position: 32, pages: 2 })));
    let unknown = store_row(&mut store, &[0, 7], 16, 1.0);
    assert!(matches!(unknown, Err(KvError::Page { page: 7, pages: 2 })));
}

proptest! {
    /// Each number is what the `half` crate rounds it to, held within ±65504, and counted if it
    /// was not within; by any instruction set and number of threads.
    #[test]
    fn f16_is_rounded_to_nearest_and_saturates(
        numbers in prop::collection::vec(any::<f32>(), 72),
        small in prop::collection::vec(-1.0f32..1.0, 72),
        threads in 1usize..4,
    ) {
        for isa in Isa::available() {
            let mut store = KvStore::new(geometry(KvType::F16), 1).unwrap();
            let team = Team::with_isa(threads, isa).unwrap();
            let (k, v) = (Strided::whole(&numbers, 72), Strided::whole(&small, 72));
            store_kv(&team, &mut store, 1, k, v, &[RowPlace { pages: &[0], position: 9 }]).unwrap();
            for head in 0..3 {
                let (k, v) = store.read(0, 1, head, 9);
                for d in 0..24 {
                    let held = numbers[head * 24 + d].clamp(-65504.0, 65504.0);
                    let wanted = f16::from_f32(held).to_f32();
                    let same = k[d].to_bits() == wanted.to_bits();
                    prop_assert!(same || k[d].is_nan() && held.is_nan());
                    prop_assert_eq!(v[d], f16::from_f32(small[head * 24 + d]).to_f32());
                }
            }
            let large = numbers.iter().filter(|x| x.abs() > 65504.0).count();
            prop_assert_eq!(store.saturated(), large as u64);
        }
    }
}
