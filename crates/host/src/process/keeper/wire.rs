//! Encodes orders and reports with postcard.
//!
//! Both ends are the same binary, so the format has no version. Unreadable bytes are [`WireError`] and end the
//! connection. postcard checks every count against the bytes that are left before it reserves memory, so a broken peer
//! cannot cause a large allocation.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::order::{EnvChange, Order, Report, StartOrder};

/// Bytes that are neither an order nor a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid bytes on the control socket of the keeper")]
pub struct WireError;

/// The bytes of an order. Its descriptors are attached separately.
#[derive(Serialize, Deserialize)]
enum Body {
    Hold,
    Start { job: u64, argv: Vec<Vec<u8>>, env: Vec<EnvChange>, cwd: Vec<u8> },
    Interrupt,
    Terminate,
    Pass(i32),
    Kill,
    Sweep { grace: Duration },
    Leash { until: Duration, watches: bool },
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("numbers, bytes and lists always serialize")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(WireError),
    }
}

/// Returns the body of a `Hold` order. Its descriptor is attached separately.
pub fn hold_body() -> Vec<u8> {
    encode(&Body::Hold)
}

/// Returns the body of an order and the descriptors to attach to it.
pub fn encode_order(order: Order) -> (Vec<u8>, Vec<OwnedFd>) {
    let (body, fds) = match order {
        Order::Hold(fd) => (Body::Hold, vec![fd]),
        Order::Start(StartOrder { job, argv, env, cwd, stdio }) => {
            (Body::Start { job, argv, env, cwd: cwd.into_os_string().into_vec() }, Vec::from(stdio))
        }
        Order::Interrupt => (Body::Interrupt, vec![]),
        Order::Terminate => (Body::Terminate, vec![]),
        Order::Pass(signal) => (Body::Pass(signal.as_raw()), vec![]),
        Order::Kill => (Body::Kill, vec![]),
        Order::Sweep { grace } => (Body::Sweep { grace }, vec![]),
        Order::Leash { until, watch } => {
            (Body::Leash { until, watches: watch.is_some() }, watch.into_iter().collect())
        }
    };
    (encode(&body), fds)
}

/// Decodes an order. Takes its descriptors from the front of `fds`.
pub fn decode_order(body: &[u8], fds: &mut VecDeque<OwnedFd>) -> Result<Order, WireError> {
    let mut fd = || fds.pop_front().ok_or(WireError);
    Ok(match decode(body)? {
        Body::Hold => Order::Hold(fd()?),
        Body::Start { job, argv, env, cwd } => Order::Start(StartOrder {
            job,
            argv,
            env,
            cwd: PathBuf::from(OsString::from_vec(cwd)),
            stdio: [fd()?, fd()?, fd()?],
        }),
        Body::Interrupt => Order::Interrupt,
        Body::Terminate => Order::Terminate,
        Body::Pass(signal) => Order::Pass(Signal::from_named_raw(signal).ok_or(WireError)?),
        Body::Kill => Order::Kill,
        Body::Sweep { grace } => Order::Sweep { grace },
        Body::Leash { until, watches } => Order::Leash { until, watch: watches.then(fd).transpose()? },
    })
}

/// Returns the body of a report.
pub fn encode_report(report: &Report) -> Vec<u8> {
    encode(report)
}

/// Decodes a report.
pub fn decode_report(body: &[u8]) -> Result<Report, WireError> {
    decode(body)
}

#[cfg(test)]
mod tests {
    use super::super::order::Remnant;
    use super::*;
    use dogwatch_core::run::job::Exit;

    fn reports() -> Vec<Report> {
        let cpu = Duration::from_micros(1_234_567);
        let remnant = Remnant { pid: 3, comm: "a b".into(), state: 'D' };
        vec![
            Report::Ready { pid: 1 },
            Report::Started { job: u64::MAX, pid: u32::MAX },
            Report::Refused { job: 2, errno: 2, message: "ls: not found".into() },
            Report::Exited { job: 3, how: Exit::Code(255), cpu, alone: true },
            Report::Exited { job: 3, how: Exit::Signal(9), cpu, alone: false },
            Report::Empty { job: 4, killed: 5, names: vec!["git gc".into()] },
            Report::Unkillable { job: 6, left: 7, detail: vec![remnant.clone(), remnant] },
        ]
    }

    #[test]
    fn a_report_survives_encoding_and_decoding() {
        for report in reports() {
            assert_eq!(decode_report(&encode_report(&report)), Ok(report));
        }
    }

    #[test]
    fn a_truncated_or_too_long_report_is_garbage() {
        for report in reports() {
            let whole = encode_report(&report);
            for length in 0..whole.len() {
                assert_eq!(decode_report(&whole[..length]), Err(WireError), "{report:?} cut to {length}");
            }
            assert_eq!(decode_report(&[whole, vec![0]].concat()), Err(WireError));
        }
    }

    #[test]
    fn an_order_that_is_truncated_or_lacks_descriptors_is_garbage() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null exists"));
        let start = StartOrder {
            job: 1,
            argv: vec![b"a".to_vec(), Vec::new()],
            env: vec![(b"X".to_vec(), None), (b"Y".to_vec(), Some(b"1".to_vec()))],
            cwd: "/".into(),
            stdio: [null(), null(), null()],
        };
        let (whole, fds) = encode_order(Order::Start(start));
        assert!(decode_order(&whole, &mut fds.into()).is_ok());
        assert!(decode_order(&whole, &mut VecDeque::from([null(), null()])).is_err());
        for length in 0..whole.len() {
            let fds = &mut VecDeque::from([null(), null(), null()]);
            assert!(decode_order(&whole[..length], fds).is_err(), "cut to {length}");
        }
    }

    // promise: 4
    #[test]
    fn count_beyond_the_bytes_is_garbage_and_allocates_nothing() {
        let (start, job) = (1_u8, 1_u8);
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        for tail in [&[][..], &[0; 64]] {
            let bytes = [&[start, job][..], &huge, tail].concat();
            assert!(decode::<Body>(&bytes).is_err(), "the count of arguments is {}", u64::MAX);
        }
        // The hint decides how much memory serde reserves for the list.
        let mut bytes = postcard::Deserializer::from_bytes(&huge);
        assert_eq!(ListHint::deserialize(&mut bytes).map(|hint| hint.0), Ok(None));
    }

    /// Reads the size that a decoder announces for a list, and nothing else.
    struct ListHint(Option<usize>);

    impl<'de> Deserialize<'de> for ListHint {
        fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<ListHint, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = ListHint;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a list")
                }
                fn visit_seq<A: serde::de::SeqAccess<'de>>(self, list: A) -> Result<ListHint, A::Error> {
                    Ok(ListHint(list.size_hint()))
                }
            }
            input.deserialize_seq(Visitor)
        }
    }
}
