//! The tail of a distribution, estimated from its largest values.
//!
//! All arithmetic is on integers, so the same sessions give the same limits on every machine. Logarithms have 32 bits after
//! the point.

use crate::time::dur::Dur;

/// 1 with 32 bits after the point.
const ONE: u64 = 1 << 32;
/// The natural logarithm of 2.
const LN_2: u64 = 2_977_044_472;
/// The smallest tail index: lighter tails are not believed.
const MIN_INDEX: u64 = 1_288_490_189;
/// The width of the one-sided confidence interval of 95 % for a normal distribution.
const Z_95: u64 = 7_065_221_202;
/// The fewest values of a tail.
const MIN_TAIL: usize = 5;
/// One session in this many may exceed the estimate.
const ONE_IN: u64 = 100;
/// Shorter values count as this long, because their ratio says nothing.
const SHORTEST: Dur = Dur::from_secs(1);

/// How heavy a tail is: the upper end of the confidence interval of Hill's estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TailIndex(u64);

impl TailIndex {
    /// Estimates the index from values in descending order. `None` if there are too few.
    pub fn of(values: &[Dur]) -> Option<TailIndex> {
        let (k, threshold) = tail(values)?;
        let base = log2(threshold.as_millis());
        let sum: u64 = values[..k].iter().map(|value| log2(value.as_millis()).saturating_sub(base)).sum();
        let mean = times(sum / k as u64, LN_2);
        let root = (u128::from(k as u64) << 64).isqrt() as u64;
        let wide = ONE + (u128::from(Z_95) * u128::from(ONE) / u128::from(root)) as u64;
        Some(TailIndex(times(mean, wide).max(MIN_INDEX)))
    }
}

/// Returns a value that few sessions exceed, from values in descending order. `None` if there are too few.
pub(super) fn bound(values: &[Dur], index: TailIndex) -> Option<Dur> {
    let (k, threshold) = tail(values)?;
    let beyond = log2(ONE_IN * k as u64).saturating_sub(log2(values.len() as u64));
    Some(Dur::from_millis(scaled(threshold.as_millis(), times(index.0, beyond))))
}

/// Returns the number of values in the tail, and the value where it begins.
fn tail(values: &[Dur]) -> Option<(usize, Dur)> {
    let k = values.len().isqrt().max(MIN_TAIL);
    Some((k, (*values.get(k)?).max(SHORTEST)))
}

/// Multiplies two numbers with 32 bits after the point.
fn times(a: u64, b: u64) -> u64 {
    u64::try_from((u128::from(a) * u128::from(b)) >> 32).unwrap_or(u64::MAX)
}

/// Returns the binary logarithm, with 32 bits after the point. The logarithm of zero is zero.
fn log2(x: u64) -> u64 {
    let Some(whole) = x.checked_ilog2() else { return 0 };
    // The mantissa has 63 bits after the point. Each squaring reveals one more bit of the logarithm.
    let mut mantissa = u128::from(x) << (63 - whole);
    let mut fraction = 0u64;
    for bit in (0..32).rev() {
        mantissa = (mantissa * mantissa) >> 63;
        if mantissa >= 1 << 64 {
            mantissa >>= 1;
            fraction |= 1 << bit;
        }
    }
    (u64::from(whole) << 32) | fraction
}

/// Returns `x` times two to a power with 32 bits after the point.
fn scaled(x: u64, power: u64) -> u64 {
    let (mut root, mut product) = (2u128 << 60, 1u128 << 60);
    for bit in (0..32).rev() {
        root = (root << 60).isqrt();
        if power >> bit & 1 == 1 {
            product = (product * root) >> 60;
        }
    }
    let shift = u32::try_from(power >> 32).unwrap_or(u32::MAX);
    let grown = (u128::from(x) * product) >> 60;
    if shift > grown.leading_zeros() { u64::MAX } else { u64::try_from(grown << shift).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(values: impl IntoIterator<Item = u64>) -> Vec<Dur> {
        let mut values: Vec<Dur> = values.into_iter().map(Dur::from_millis).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values
    }

    #[test]
    fn logarithms_and_powers_agree_with_floating_point() {
        for x in [1, 2, 3, 999, 1_000, 86_400_000, u64::MAX] {
            let float = (x as f64).log2();
            assert!((log2(x) as f64 / ONE as f64 - float).abs() < 1e-8, "{x}");
        }
        assert_eq!(log2(0), 0);
        for power in [0.0, 0.5, 1.0, 3.3, 12.75] {
            let exact = 1e6 * f64::powf(2.0, power);
            let ours = scaled(1_000_000, (power * ONE as f64) as u64) as f64;
            assert!((ours / exact - 1.0).abs() < 1e-5, "2^{power}: {ours} {exact}");
        }
        assert_eq!(scaled(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(scaled(1, 64 << 32), u64::MAX);
    }

    #[test]
    fn the_estimate_is_hills_with_the_upper_end_of_its_interval() {
        // A Pareto tail with index 0.5: the n-th largest of N values is (N / n)^0.5 seconds.
        let n = 400u64;
        let values = secs((1..=n).map(|i| (1_000.0 * (n as f64 / i as f64).sqrt()) as u64));
        let k = 20.0f64;
        let hill =
            (0..20).map(|i| (values[i].as_secs_f64() / values[20].as_secs_f64()).ln()).sum::<f64>() / k;
        let upper = hill * (1.0 + 1.645 / k.sqrt());
        let TailIndex(index) = TailIndex::of(&values).expect("enough");
        assert!((index as f64 / ONE as f64 - upper).abs() < 1e-5, "{index} {upper}");
        let expected = values[20].as_secs_f64() * (100.0 * k / n as f64).powf(upper);
        let found = bound(&values, TailIndex(index)).expect("enough").as_secs_f64();
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
    }

    #[test]
    fn equal_values_have_the_lightest_tail_and_few_values_have_none() {
        assert_eq!(TailIndex::of(&secs([7_000; 5])), None);
        let six = secs([7_000; 6]);
        assert_eq!(TailIndex::of(&six), Some(TailIndex(MIN_INDEX)));
        assert!(bound(&six, TailIndex(MIN_INDEX)).is_some_and(|bound| bound > Dur::from_secs(7)));
        assert_eq!(TailIndex::of(&secs([0; 50])), Some(TailIndex(MIN_INDEX)));
        assert!(bound(&secs([u64::MAX; 50]), TailIndex(u64::MAX)).is_some());
    }
}
