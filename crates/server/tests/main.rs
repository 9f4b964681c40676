//! The API with a stand-in for the run. One program for all files, because each program is linked with everything that it uses.

mod external_agents;
mod guarded;
mod machine;
mod routes;
mod status;
mod streams;
mod support;
