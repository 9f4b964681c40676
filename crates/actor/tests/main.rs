//! The scripted agent as a process. One program for all files, because each program is linked with everything that it uses.

mod common;
mod printing;
mod processes;
mod readable;
mod signals;
mod working;
