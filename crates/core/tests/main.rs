//! The watchdog and learned limits on recorded turns. One program for all files, because each program is linked with everything that it uses.

mod learning;
mod needs;
mod parallel;
mod scene;
mod watchdog;
