//! `libtailback`: a receiver of telemetry for C.
//!
//! An MPI library, UCX or a driver passes (packet id, header, source, context) of every packet it
//! receives, and queries the estimated packets and congested packets of every link with standard errors. The
//! estimator is safe code in [`receiver`]; only `ffi` contains `unsafe`, and each block there states why it
//! is sound. `include/tailback.h` is the header.

#[allow(unsafe_code)]
mod ffi;
pub mod marks;
pub mod receiver;

pub use ffi::*;
