//! The KV store through its public interface.

use half::{bf16, f16};
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
    for kv_type in KvType::ALL {
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

#[test]
fn a_token_takes_nine_sixteenths_of_f16_in_bytes_with_scales() {
    let [_, bf16, f16, q8_0] =
        KvType::ALL.map(|kv_type| KvGeometry { layers: 30, kv_heads: 3, head_dim: 64, kv_type });
    assert_eq!(bf16.token_bytes(), f16.token_bytes());
    assert_eq!((f16.token_bytes(), q8_0.token_bytes()), (30 * 3 * 256, 30 * 3 * 144));
    for geometry in [bf16, f16, q8_0] {
        let padding = geometry.page_bytes() - 16 * geometry.token_bytes();
        assert!(padding < 4096, "{padding} bytes of padding");
    }
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

    /// Each number is what the `half` crate rounds it to, by any instruction set and number of
    /// threads, beside any other token and for any number of dimensions.
    #[test]
    fn bf16_is_rounded_to_nearest(
        numbers in prop::collection::vec(any::<f32>(), 2 * 3 * 24),
        head_dim in prop::sample::select(vec![1usize, 6, 7, 24]),
        position in 0usize..16,
        threads in 1usize..4,
    ) {
        let geometry = KvGeometry { head_dim, ..geometry(KvType::BF16) };
        let (width, places) = (3 * head_dim, [position, (position + 1) % 16]);
        let numbers = &numbers[..2 * width];
        for isa in Isa::available() {
            let mut store = KvStore::new(geometry, 1).unwrap();
            let team = Team::with_isa(threads, isa).unwrap();
            let view = Strided::whole(numbers, width);
            let rows = places.map(|position| RowPlace { pages: &[0], position });
            store_kv(&team, &mut store, 1, view, view, &rows).unwrap();
            for (row, place) in numbers.chunks(width).zip(places) {
                for (head, numbers) in row.chunks(head_dim).enumerate() {
                    let (k, v) = store.read(0, 1, head, place);
                    for ((k, v), &number) in k.iter().zip(&v).zip(numbers) {
                        let wanted = bf16::from_f32(number).to_f32();
                        let same = k.to_bits() == wanted.to_bits();
                        prop_assert!(same || k.is_nan() && number.is_nan());
                        prop_assert_eq!(k.to_bits(), v.to_bits());
                    }
                }
            }
        }
    }

    /// Each number is within half a step of what was stored, a step being the greatest magnitude
    /// of its own 32 dimensions of its own token by 127; and neither other tokens, nor other
    /// instruction sets or threads change what a token stores.
    #[test]
    fn q8_0_is_rounded_by_the_row_s_own_scales(
        numbers in prop::collection::vec(-1e6f32..1e6, 2 * 80),
        others in prop::collection::vec(any::<f32>(), 2 * 80),
        head_dim in prop::sample::select(vec![6usize, 32, 40]),
        threads in 1usize..4,
    ) {
        let width = 2 * head_dim;
        let geometry = KvGeometry { layers: 1, kv_heads: 2, head_dim, kv_type: KvType::Q8_0 };
        let mut first = None;
        for isa in Isa::available() {
            let mut store = KvStore::new(geometry, 1).unwrap();
            let team = Team::with_isa(threads, isa).unwrap();
            let mut put = |numbers: &[f32], position| {
                let (k, v) = (&numbers[..width], &numbers[80..][..width]);
                let (k, v) = (Strided::whole(k, width), Strided::whole(v, width));
                let place = [RowPlace { pages: &[0], position }];
                store_kv(&team, &mut store, 0, k, v, &place).unwrap();
            };
            put(&others, 8);
            put(&numbers, 9);
            put(&others, 10);
            for head in 0..2 {
                let (k, v) = store.read(0, 0, head, 9);
                for (stored, start) in [(k, head * head_dim), (v, 80 + head * head_dim)] {
                    let given = &numbers[start..][..head_dim];
                    for (stored, given) in stored.chunks(32).zip(given.chunks(32)) {
                        let greatest = given.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                        for (stored, given) in stored.iter().zip(given) {
                            let most = f64::from(greatest) * (0.5 / 127.0 + 1e-6);
                            let error = (f64::from(*stored) - f64::from(*given)).abs();
                            prop_assert!(error <= most, "{} for {}", stored, given);
                        }
                    }
                }
            }
            let read: Vec<_> = (0..2).map(|head| store.read(0, 0, head, 9)).collect();
            prop_assert_eq!(first.get_or_insert_with(|| read.clone()), &read);
        }
    }

    /// A block with a number that is not finite reads as NaN, and the blocks beside it as ever.
    #[test]
    fn q8_0_keeps_what_is_not_finite_to_its_block(at in 0usize..80, infinite in any::<bool>()) {
        let geometry =
            KvGeometry { layers: 1, kv_heads: 1, head_dim: 80, kv_type: KvType::Q8_0 };
        let mut numbers = [0.5f32; 80];
        numbers[at] = if infinite { f32::NEG_INFINITY } else { f32::NAN };
        for isa in Isa::available() {
            let mut store = KvStore::new(geometry, 1).unwrap();
            let team = Team::with_isa(1, isa).unwrap();
            let view = Strided::whole(&numbers, 80);
            store_kv(&team, &mut store, 0, view, view, &[RowPlace { pages: &[0], position: 3 }])
                .unwrap();
            let (k, v) = store.read(0, 0, 0, 3);
            for (d, x) in k.into_iter().enumerate().chain(v.into_iter().enumerate()) {
                let same = if d / 32 == at / 32 { x.is_nan() } else { (x - 0.5).abs() < 1e-6 };
                prop_assert!(same, "dimension {} reads {}", d, x);
            }
            prop_assert_eq!(store.read(0, 0, 0, 2), (vec![0.0; 80], vec![0.0; 80]));
        }
    }
}
