//! A timer as a descriptor, which causes no wake-ups while it waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Which clock a timer follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Pauses while the host is suspended (CLOCK_MONOTONIC).
    Awake,
    /// Keeps running in suspend; the timer fires when the host wakes (CLOCK_BOOTTIME).
    Boot,
}

/// A timer that fires once.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that is not set.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let clock = match clock {
            Clock::Awake => TimerfdClockId::Monotonic,
            Clock::Boot => TimerfdClockId::Boottime,
        };
        Ok(Self(timerfd_create(clock, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable once the clock reaches `at`, an absolute time.
    pub fn set_at(&self, at: Duration) -> io::Result<()> {
        // Zero would disarm the timer. The first nanosecond is in the past as well.
        self.set(at.max(Duration::from_nanos(1)))
    }

    /// Disarms the timer.
    pub fn clear(&self) -> io::Result<()> {
        self.set(Duration::ZERO)
    }

    /// Clears the readable state. Returns whether the timer had fired.
    pub fn drain(&self) -> io::Result<bool> {
        let mut count = [0_u8; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn set(&self, at: Duration) -> io::Result<()> {
        let it_value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_past_moment_fires_once() {
        for clock in [Clock::Awake, Clock::Boot] {
            let timer = Timer::new(clock).expect("a timer");
            timer.set_at(Duration::ZERO).expect("set");
            poll(&mut [PollFd::new(&timer, PollFlags::IN)], None).expect("poll");
            assert!(timer.drain().expect("drain"));
            assert!(!timer.drain().expect("drain"));
        }
    }

    #[test]
    fn a_cleared_timer_does_not_fire() {
        let timer = Timer::new(Clock::Boot).expect("a timer");
        timer.set_at(Duration::from_nanos(1)).expect("set");
        timer.clear().expect("clear");
        assert!(!timer.drain().expect("drain"));
    }
}
