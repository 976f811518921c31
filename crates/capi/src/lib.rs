//! `libtailback`: a receiver of telemetry for C.
//!
//! An MPI library, UCX or a driver hands over (packet id, header, source, context) of every packet it
//! receives, and asks for the packets and congested packets of every link with standard errors. The
//! estimator is safe code in [`receiver`]; `ffi` is the only place with `unsafe`, and each block there
//! states what makes it sound. `include/tailback.h` is the header.

#[allow(unsafe_code)]
mod ffi;
pub mod receiver;

pub use ffi::*;
