//! Fast hashes for comparing values. They are recorded, so they must be the same on every machine and in every
//! version. They are not cryptographic.

const K1: u64 = 0x9e37_79b9_7f4a_7c15;
const K2: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// Returns the hash of a byte string.
pub fn bytes(bytes: &[u8]) -> u64 {
    let mut state = K1;
    let (pairs, rest) = bytes.as_chunks::<16>();
    for pair in pairs {
        let (low, high) = pair.split_at(8);
        state = fold(state ^ word(low), K2 ^ word(high));
    }
    let (low, high) = rest.split_at(rest.len().min(8));
    mix(fold(state ^ word(low), K2 ^ word(high)), bytes.len() as u64)
}

/// Combines two hashes; the order matters.
pub fn mix(a: u64, b: u64) -> u64 {
    fold(a ^ K1, b.rotate_left(32) ^ K2)
}

/// Reads at most eight bytes as a little-endian number.
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => bytes.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b)),
    }
}

/// Combines both halves of the product, so that every bit of the factors affects every bit of the result.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn texts_that_differ_in_a_byte_or_in_length_have_different_hashes() {
        let mut seen = BTreeSet::new();
        for length in 0..100 {
            let zeros = vec![0; length];
            assert!(seen.insert(bytes(&zeros)), "{length}");
            for at in 0..length {
                for bit in 0..8 {
                    let mut other = zeros.clone();
                    other[at] ^= 1 << bit;
                    assert!(seen.insert(bytes(&other)), "{length} {at} {bit}");
                }
            }
        }
    }

    #[test]
    fn mixing_depends_on_the_order() {
        let (a, b) = (bytes(b"a"), bytes(b"b"));
        assert_ne!(mix(a, b), mix(b, a));
        assert_ne!(mix(mix(0, a), b), mix(mix(0, b), a));
    }

    #[test]
    fn a_hash_is_the_same_everywhere() {
        assert_eq!(bytes(b""), 18_045_060_210_114_981_133);
        assert_eq!(bytes(b"a text that is longer than sixteen bytes"), 2_731_121_873_442_863_632);
    }
}
