//! Safe wrappers of the OTF2 C library. Only this module and its callbacks contain `unsafe` code.
//!
//! The library is loaded at run time, because it comes in a Python wheel. Declarations follow the
//! OTF2 3.x reference. Soundness rests on these points:
//!
//! * every handle is used only by the thread that opened it, and closed by the wrapper that owns it;
//! * user data passed to C is a pointer to a sink that outlives the call that reads the records;
//! * callbacks only append to Rust collections and never unwind into C;
//! * data behind pointers passed to a callback (strings, member lists) is copied before it returns.

mod callbacks;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::slice;

use crate::definitions::{Attributes, Definition};
use crate::error::TraceError;
use crate::event::EventSink;
use crate::tables::ClockOffset;

use callbacks::*;

macro_rules! api {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*) -> $ret:ty;)*) => {
        struct Api { $($name: unsafe extern "C" fn($($arg),*) -> $ret,)* }

        impl Api {
            fn load(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the OTF2 headers for these symbols.
                unsafe { Ok(Self { $($name: *library.get($symbol)?,)* }) }
            }
        }
    };
}

api! {
    register_error_callback = b"OTF2_Error_RegisterCallback\0": fn(*const c_void, Handle) -> *const c_void;
    error_description = b"OTF2_Error_GetDescription\0": fn(Code) -> *const c_char;
    open = b"OTF2_Reader_Open\0": fn(*const c_char) -> Handle;
    close = b"OTF2_Reader_Close\0": fn(Handle) -> Code;
    serial = b"OTF2_Reader_SetSerialCollectiveCallbacks\0": fn(Handle) -> Code;
    number_of_locations = b"OTF2_Reader_GetNumberOfLocations\0": fn(Handle, *mut u64) -> Code;
    number_of_definitions = b"OTF2_Reader_GetNumberOfGlobalDefinitions\0": fn(Handle, *mut u64) -> Code;
    creator = b"OTF2_Reader_GetCreator\0": fn(Handle, *mut *mut c_char) -> Code;
    get_global_defs = b"OTF2_Reader_GetGlobalDefReader\0": fn(Handle) -> Handle;
    close_global_defs = b"OTF2_Reader_CloseGlobalDefReader\0": fn(Handle, Handle) -> Code;
    register_global_defs = b"OTF2_Reader_RegisterGlobalDefCallbacks\0": fn(Handle, Handle, Handle, Handle) -> Code;
    read_global_defs = b"OTF2_Reader_ReadAllGlobalDefinitions\0": fn(Handle, Handle, *mut u64) -> Code;
    def_callbacks_new = b"OTF2_GlobalDefReaderCallbacks_New\0": fn() -> Handle;
    def_callbacks_delete = b"OTF2_GlobalDefReaderCallbacks_Delete\0": fn(Handle) -> ();
    on_clock = b"OTF2_GlobalDefReaderCallbacks_SetClockPropertiesCallback\0": fn(Handle, *const c_void) -> Code;
    on_string = b"OTF2_GlobalDefReaderCallbacks_SetStringCallback\0": fn(Handle, *const c_void) -> Code;
    on_system_tree_node = b"OTF2_GlobalDefReaderCallbacks_SetSystemTreeNodeCallback\0": fn(Handle, *const c_void) -> Code;
    on_location_group = b"OTF2_GlobalDefReaderCallbacks_SetLocationGroupCallback\0": fn(Handle, *const c_void) -> Code;
    on_location = b"OTF2_GlobalDefReaderCallbacks_SetLocationCallback\0": fn(Handle, *const c_void) -> Code;
    on_region = b"OTF2_GlobalDefReaderCallbacks_SetRegionCallback\0": fn(Handle, *const c_void) -> Code;
    on_site = b"OTF2_GlobalDefReaderCallbacks_SetSourceCodeLocationCallback\0": fn(Handle, *const c_void) -> Code;
    on_context = b"OTF2_GlobalDefReaderCallbacks_SetCallingContextCallback\0": fn(Handle, *const c_void) -> Code;
    on_group = b"OTF2_GlobalDefReaderCallbacks_SetGroupCallback\0": fn(Handle, *const c_void) -> Code;
    on_comm = b"OTF2_GlobalDefReaderCallbacks_SetCommCallback\0": fn(Handle, *const c_void) -> Code;
    on_attribute = b"OTF2_GlobalDefReaderCallbacks_SetAttributeCallback\0": fn(Handle, *const c_void) -> Code;
    on_window = b"OTF2_GlobalDefReaderCallbacks_SetRmaWinCallback\0": fn(Handle, *const c_void) -> Code;
    on_cart_dimension = b"OTF2_GlobalDefReaderCallbacks_SetCartDimensionCallback\0": fn(Handle, *const c_void) -> Code;
    on_cart_topology = b"OTF2_GlobalDefReaderCallbacks_SetCartTopologyCallback\0": fn(Handle, *const c_void) -> Code;
    on_inter_comm = b"OTF2_GlobalDefReaderCallbacks_SetInterCommCallback\0": fn(Handle, *const c_void) -> Code;
    select = b"OTF2_Reader_SelectLocation\0": fn(Handle, u64) -> Code;
    open_def_files = b"OTF2_Reader_OpenDefFiles\0": fn(Handle) -> Code;
    close_def_files = b"OTF2_Reader_CloseDefFiles\0": fn(Handle) -> Code;
    get_defs = b"OTF2_Reader_GetDefReader\0": fn(Handle, u64) -> Handle;
    close_defs = b"OTF2_Reader_CloseDefReader\0": fn(Handle, Handle) -> Code;
    register_defs = b"OTF2_Reader_RegisterDefCallbacks\0": fn(Handle, Handle, Handle, Handle) -> Code;
    local_callbacks_new = b"OTF2_DefReaderCallbacks_New\0": fn() -> Handle;
    local_callbacks_delete = b"OTF2_DefReaderCallbacks_Delete\0": fn(Handle) -> ();
    on_clock_offset = b"OTF2_DefReaderCallbacks_SetClockOffsetCallback\0": fn(Handle, *const c_void) -> Code;
    read_defs = b"OTF2_Reader_ReadAllLocalDefinitions\0": fn(Handle, Handle, *mut u64) -> Code;
    open_evt_files = b"OTF2_Reader_OpenEvtFiles\0": fn(Handle) -> Code;
    close_evt_files = b"OTF2_Reader_CloseEvtFiles\0": fn(Handle) -> Code;
    get_events = b"OTF2_Reader_GetEvtReader\0": fn(Handle, u64) -> Handle;
    close_events = b"OTF2_Reader_CloseEvtReader\0": fn(Handle, Handle) -> Code;
    register_events = b"OTF2_Reader_RegisterEvtCallbacks\0": fn(Handle, Handle, Handle, Handle) -> Code;
    read_events = b"OTF2_Reader_ReadAllLocalEvents\0": fn(Handle, Handle, *mut u64) -> Code;
    evt_callbacks_new = b"OTF2_EvtReaderCallbacks_New\0": fn() -> Handle;
    evt_callbacks_delete = b"OTF2_EvtReaderCallbacks_Delete\0": fn(Handle) -> ();
    on_enter = b"OTF2_EvtReaderCallbacks_SetEnterCallback\0": fn(Handle, *const c_void) -> Code;
    on_leave = b"OTF2_EvtReaderCallbacks_SetLeaveCallback\0": fn(Handle, *const c_void) -> Code;
    on_context_enter = b"OTF2_EvtReaderCallbacks_SetCallingContextEnterCallback\0": fn(Handle, *const c_void) -> Code;
    on_context_leave = b"OTF2_EvtReaderCallbacks_SetCallingContextLeaveCallback\0": fn(Handle, *const c_void) -> Code;
    on_measurement = b"OTF2_EvtReaderCallbacks_SetMeasurementOnOffCallback\0": fn(Handle, *const c_void) -> Code;
    on_send = b"OTF2_EvtReaderCallbacks_SetMpiSendCallback\0": fn(Handle, *const c_void) -> Code;
    on_isend = b"OTF2_EvtReaderCallbacks_SetMpiIsendCallback\0": fn(Handle, *const c_void) -> Code;
    on_isend_complete = b"OTF2_EvtReaderCallbacks_SetMpiIsendCompleteCallback\0": fn(Handle, *const c_void) -> Code;
    on_irecv_request = b"OTF2_EvtReaderCallbacks_SetMpiIrecvRequestCallback\0": fn(Handle, *const c_void) -> Code;
    on_recv = b"OTF2_EvtReaderCallbacks_SetMpiRecvCallback\0": fn(Handle, *const c_void) -> Code;
    on_irecv = b"OTF2_EvtReaderCallbacks_SetMpiIrecvCallback\0": fn(Handle, *const c_void) -> Code;
    on_test = b"OTF2_EvtReaderCallbacks_SetMpiRequestTestCallback\0": fn(Handle, *const c_void) -> Code;
    on_cancelled = b"OTF2_EvtReaderCallbacks_SetMpiRequestCancelledCallback\0": fn(Handle, *const c_void) -> Code;
    on_collective_begin = b"OTF2_EvtReaderCallbacks_SetMpiCollectiveBeginCallback\0": fn(Handle, *const c_void) -> Code;
    on_collective_end = b"OTF2_EvtReaderCallbacks_SetMpiCollectiveEndCallback\0": fn(Handle, *const c_void) -> Code;
    on_icollective = b"OTF2_EvtReaderCallbacks_SetNonBlockingCollectiveRequestCallback\0": fn(Handle, *const c_void) -> Code;
    on_icollective_complete = b"OTF2_EvtReaderCallbacks_SetNonBlockingCollectiveCompleteCallback\0": fn(Handle, *const c_void) -> Code;
    on_probe = b"OTF2_EvtReaderCallbacks_SetMpiProbeCallback\0": fn(Handle, *const c_void) -> Code;
    on_mrecv = b"OTF2_EvtReaderCallbacks_SetMpiMrecvCallback\0": fn(Handle, *const c_void) -> Code;
    on_imrecv_request = b"OTF2_EvtReaderCallbacks_SetMpiImrecvRequestCallback\0": fn(Handle, *const c_void) -> Code;
    on_imrecv = b"OTF2_EvtReaderCallbacks_SetMpiImrecvCallback\0": fn(Handle, *const c_void) -> Code;
    on_put = b"OTF2_EvtReaderCallbacks_SetRmaPutCallback\0": fn(Handle, *const c_void) -> Code;
    on_get = b"OTF2_EvtReaderCallbacks_SetRmaGetCallback\0": fn(Handle, *const c_void) -> Code;
    on_atomic = b"OTF2_EvtReaderCallbacks_SetRmaAtomicCallback\0": fn(Handle, *const c_void) -> Code;
    on_rma_blocking = b"OTF2_EvtReaderCallbacks_SetRmaOpCompleteBlockingCallback\0": fn(Handle, *const c_void) -> Code;
    on_rma_complete = b"OTF2_EvtReaderCallbacks_SetRmaOpCompleteNonBlockingCallback\0": fn(Handle, *const c_void) -> Code;
    on_rma_collective = b"OTF2_EvtReaderCallbacks_SetRmaCollectiveEndCallback\0": fn(Handle, *const c_void) -> Code;
    on_rma_group = b"OTF2_EvtReaderCallbacks_SetRmaGroupSyncCallback\0": fn(Handle, *const c_void) -> Code;
    on_rma_sync = b"OTF2_EvtReaderCallbacks_SetRmaSyncCallback\0": fn(Handle, *const c_void) -> Code;
    on_rma_release = b"OTF2_EvtReaderCallbacks_SetRmaReleaseLockCallback\0": fn(Handle, *const c_void) -> Code;
    has_attribute = b"OTF2_AttributeList_TestAttributeByID\0": fn(Handle, u32) -> bool;
    string_of = b"OTF2_AttributeList_GetStringRef\0": fn(Handle, u32, *mut u32) -> Code;
    number_of = b"OTF2_AttributeList_GetUint64\0": fn(Handle, u32, *mut u64) -> Code;
}

unsafe extern "C" {
    /// `free` of the C library: the OTF2 library allocates the strings it returns with `malloc`.
    fn free(memory: Handle);
}

thread_local! {
    /// The first error that the library reported on this thread since this was cleared.
    static FIRST_ERROR: Cell<Code> = const { Cell::new(0) };
}

/// Replaces the library's handler, which prints to standard error; keeps the first error.
extern "C" fn remember_error(
    _data: Handle,
    _file: *const c_char,
    _line: u64,
    _function: *const c_char,
    code: Code,
    _format: *const c_char,
    _arguments: Handle,
) -> Code {
    // Warnings are negative.
    if code > 0 {
        FIRST_ERROR.with(|first| {
            if first.get() == 0 {
                first.set(code);
            }
        });
    }
    code
}

/// The loaded OTF2 library.
pub struct Library {
    api: Api,
    // Keeps the library loaded while its functions may be called.
    _library: libloading::Library,
}

impl Library {
    /// Loads the shared library at `path`.
    ///
    /// # Errors
    /// [`TraceError::Library`] if it cannot be loaded or lacks a function.
    pub fn load(path: &Path) -> Result<Self, TraceError> {
        let failed = |error: libloading::Error| TraceError::Library {
            library: path.to_path_buf(),
            reason: error.to_string(),
        };
        // SAFETY: loading runs the library's initialisers; OTF2 has none with side effects.
        let library = unsafe { libloading::Library::new(path) }.map_err(failed)?;
        let api = Api::load(&library).map_err(failed)?;
        // SAFETY: the callback has the signature of OTF2_ErrorCallback (a `va_list` is passed as a
        // pointer and is not touched) and needs no user data.
        unsafe { (api.register_error_callback)(remember_error as *const c_void, ptr::null_mut()) };
        Ok(Self { api, _library: library })
    }

    /// Opens the archive of an anchor file.
    ///
    /// # Errors
    /// [`TraceError::Anchor`] if the library refuses it.
    pub fn open(&self, anchor: &Path) -> Result<Archive<'_>, TraceError> {
        let refused = |reason: String| TraceError::Anchor { file: anchor.to_path_buf(), reason };
        let name = CString::new(anchor.as_os_str().as_encoded_bytes())
            .map_err(|_| refused("the path contains a NUL byte".to_owned()))?;
        FIRST_ERROR.set(0);
        // SAFETY: `name` is a C string that outlives the call.
        let reader = unsafe { (self.api.open)(name.as_ptr()) };
        if reader.is_null() {
            return Err(refused(format!("not an OTF2 anchor file ({})", self.last_error())));
        }
        let archive = Archive { otf2: self, reader, anchor: anchor.to_path_buf() };
        // SAFETY: `reader` is open.
        let code = unsafe { (self.api.serial)(reader) };
        if code != 0 {
            return Err(refused(format!("cannot be opened ({})", self.describe(code))));
        }
        Ok(archive)
    }

    fn describe(&self, code: Code) -> String {
        // SAFETY: the library returns a static string or NULL.
        let text = unsafe { (self.api.error_description)(code) };
        if text.is_null() {
            return format!("OTF2 error {code}");
        }
        // SAFETY: not NULL, terminated, static.
        unsafe { text_of(text) }
    }

    fn last_error(&self) -> String {
        match FIRST_ERROR.get() {
            0 => "no reason given".to_owned(),
            code => self.describe(code),
        }
    }

    /// `Err` with a description if `code` is an error, or one was reported since the last clear.
    fn check(&self, code: Code) -> Result<(), String> {
        match (code, FIRST_ERROR.get()) {
            (0, 0) => Ok(()),
            (_, first) if first != 0 => Err(self.describe(first)),
            (code, _) => Err(self.describe(code)),
        }
    }
}

/// An open archive; used by one thread.
pub struct Archive<'a> {
    otf2: &'a Library,
    reader: Handle,
    anchor: PathBuf,
}

impl Drop for Archive<'_> {
    fn drop(&mut self) {
        // SAFETY: `reader` is open and not used after this.
        unsafe { (self.otf2.api.close)(self.reader) };
    }
}

impl Archive<'_> {
    /// Number of locations that the anchor file declares.
    pub fn n_locations(&self) -> u64 {
        let mut number = 0;
        // SAFETY: `reader` is open, `number` is valid for the call.
        unsafe { (self.otf2.api.number_of_locations)(self.reader, &mut number) };
        number
    }

    /// Name of the tracer that wrote the archive, empty if it is not recorded.
    pub fn creator(&self) -> String {
        let mut text: *mut c_char = ptr::null_mut();
        // SAFETY: `reader` is open, `text` is valid for the call.
        let code = unsafe { (self.otf2.api.creator)(self.reader, &mut text) };
        if code != 0 || text.is_null() {
            return String::new();
        }
        // SAFETY: a terminated string that the caller must free.
        unsafe {
            let creator = text_of(text);
            free(text.cast());
            creator
        }
    }

    /// Reads all global definitions.
    ///
    /// # Errors
    /// [`TraceError::Definitions`] if the file is missing, truncated or damaged.
    pub(crate) fn definitions(&self) -> Result<Vec<Definition>, TraceError> {
        let file = self.anchor.with_extension("def");
        let api = &self.otf2.api;
        FIRST_ERROR.set(0);
        // SAFETY: `reader` is open; a NULL result is handled.
        let defs = unsafe { (api.get_global_defs)(self.reader) };
        if defs.is_null() {
            let reason =
                format!("the global definitions cannot be opened ({})", self.otf2.last_error());
            return Err(TraceError::Definitions { file, place: "start".to_owned(), reason });
        }
        let mut sink: Vec<Definition> = Vec::new();
        let mut read = 0;
        // SAFETY: `sink` outlives the reading; the callback functions have the signatures of the
        // OTF2 3.x headers (each ignores trailing arguments it does not name, which the C calling
        // convention allows); `callbacks` is deleted after its last use.
        let code = unsafe {
            let callbacks = (api.def_callbacks_new)();
            (api.on_clock)(callbacks, define_clock as *const c_void);
            (api.on_string)(callbacks, define_string as *const c_void);
            (api.on_system_tree_node)(callbacks, define_system_tree_node as *const c_void);
            (api.on_location_group)(callbacks, define_location_group as *const c_void);
            (api.on_location)(callbacks, define_location as *const c_void);
            (api.on_region)(callbacks, define_region as *const c_void);
            (api.on_site)(callbacks, define_site as *const c_void);
            (api.on_context)(callbacks, define_context as *const c_void);
            (api.on_group)(callbacks, define_group as *const c_void);
            (api.on_comm)(callbacks, define_comm as *const c_void);
            (api.on_inter_comm)(callbacks, define_inter_comm as *const c_void);
            (api.on_attribute)(callbacks, define_attribute as *const c_void);
            (api.on_window)(callbacks, define_window as *const c_void);
            (api.on_cart_dimension)(callbacks, define_cart_dimension as *const c_void);
            (api.on_cart_topology)(callbacks, define_cart_topology as *const c_void);
            let data = (&raw mut sink).cast();
            let mut code = (api.register_global_defs)(self.reader, defs, callbacks, data);
            if code == 0 {
                code = (api.read_global_defs)(self.reader, defs, &mut read);
            }
            (api.def_callbacks_delete)(callbacks);
            code
        };
        let mut announced = read;
        // SAFETY: `reader` is open, `announced` is valid for the call.
        unsafe { (api.number_of_definitions)(self.reader, &mut announced) };
        let outcome = self.otf2.check(code).and_then(|()| {
            if read == announced {
                Ok(())
            } else {
                Err(format!(
                    "the file ends here, but the anchor file declares {announced} definitions"
                ))
            }
        });
        // SAFETY: `defs` came from this reader and is not used after this.
        unsafe { (api.close_global_defs)(self.reader, defs) };
        outcome.map_err(|reason| TraceError::Definitions {
            file,
            place: format!("definition {read}"),
            reason,
        })?;
        Ok(sink)
    }

    /// Selects `location` for reading; must be called once, before [`Archive::events`].
    /// `has_definitions` tells whether it has local definitions.
    ///
    /// Returns the clock offsets recorded for it. The library interpolates between them and corrects
    /// all times that [`Archive::events`] delivers.
    ///
    /// # Errors
    /// [`TraceError::Anchor`] if the event files cannot be opened.
    pub fn select(
        &self,
        location: u64,
        has_definitions: bool,
    ) -> Result<Vec<ClockOffset>, TraceError> {
        let api = &self.otf2.api;
        let mut offsets: Vec<ClockOffset> = Vec::new();
        FIRST_ERROR.set(0);
        // SAFETY: `reader` is open. Local definition files are optional, so failing to open them is
        // not an error; they carry the tables from local to global ids and the clock offsets.
        // `offsets` outlives the reading, `callbacks` is deleted after its last use, and the
        // callback has the signature of the OTF2 3.x headers.
        let code = unsafe {
            (api.select)(self.reader, location);
            // Skip files without definitions: the library clears a whole chunk, megabytes, per file.
            let local = has_definitions && (api.open_def_files)(self.reader) == 0;
            FIRST_ERROR.set(0);
            let code = (api.open_evt_files)(self.reader);
            if local {
                let defs = (api.get_defs)(self.reader, location);
                if !defs.is_null() {
                    let callbacks = (api.local_callbacks_new)();
                    (api.on_clock_offset)(callbacks, clock_offset as *const c_void);
                    let data = (&raw mut offsets).cast();
                    (api.register_defs)(self.reader, defs, callbacks, data);
                    (api.local_callbacks_delete)(callbacks);
                    let mut read = 0;
                    (api.read_defs)(self.reader, defs, &mut read);
                    (api.close_defs)(self.reader, defs);
                }
                (api.close_def_files)(self.reader);
            }
            code
        };
        if code != 0 {
            return Err(TraceError::Anchor {
                file: self.anchor.clone(),
                reason: self.otf2.describe(code),
            });
        }
        FIRST_ERROR.set(0);
        Ok(offsets)
    }

    /// Reads the events of a selected location into `sink`; returns the number of records read.
    ///
    /// Of the attributes of events, `attributes` are read.
    ///
    /// # Errors
    /// [`TraceError::Events`] if the file is missing, truncated or damaged.
    pub(crate) fn events<S: EventSink>(
        &self,
        location: u64,
        attributes: Attributes,
        sink: &mut S,
    ) -> Result<u64, TraceError> {
        let api = &self.otf2.api;
        let failed = |event: u64, reason: String| TraceError::Events {
            file: self.anchor.with_extension("").join(format!("{location}.evt")),
            location,
            event,
            reason,
        };
        FIRST_ERROR.set(0);
        // SAFETY: `reader` is open; a NULL result is handled.
        let events = unsafe { (api.get_events)(self.reader, location) };
        if events.is_null() {
            return Err(failed(0, format!("cannot be opened ({})", self.otf2.last_error())));
        }
        let mut read = 0;
        let (has, string, number) = (api.has_attribute, api.string_of, api.number_of);
        look_for(attributes, AttributeReader { has, string, number });
        // SAFETY: as in `definitions`: the signatures are those of OTF2 3.x and `sink` outlives the
        // call that uses it.
        let code = unsafe {
            let callbacks = (api.evt_callbacks_new)();
            (api.on_enter)(callbacks, enter::<S> as *const c_void);
            (api.on_leave)(callbacks, leave::<S> as *const c_void);
            (api.on_context_enter)(callbacks, context_enter::<S> as *const c_void);
            (api.on_context_leave)(callbacks, context_leave::<S> as *const c_void);
            (api.on_measurement)(callbacks, measurement::<S> as *const c_void);
            (api.on_send)(callbacks, send::<S> as *const c_void);
            (api.on_isend)(callbacks, isend::<S> as *const c_void);
            (api.on_isend_complete)(callbacks, isend_complete::<S> as *const c_void);
            (api.on_irecv_request)(callbacks, irecv_request::<S> as *const c_void);
            (api.on_recv)(callbacks, recv::<S> as *const c_void);
            (api.on_irecv)(callbacks, irecv::<S> as *const c_void);
            (api.on_test)(callbacks, test::<S> as *const c_void);
            (api.on_cancelled)(callbacks, cancelled::<S> as *const c_void);
            (api.on_collective_begin)(callbacks, collective_begin::<S> as *const c_void);
            (api.on_collective_end)(callbacks, collective_end::<S> as *const c_void);
            (api.on_icollective)(callbacks, icollective::<S> as *const c_void);
            (api.on_icollective_complete)(callbacks, icollective_complete::<S> as *const c_void);
            (api.on_probe)(callbacks, probe::<S> as *const c_void);
            (api.on_mrecv)(callbacks, mrecv::<S> as *const c_void);
            (api.on_imrecv_request)(callbacks, imrecv_request::<S> as *const c_void);
            (api.on_imrecv)(callbacks, imrecv::<S> as *const c_void);
            (api.on_put)(callbacks, put::<S> as *const c_void);
            (api.on_get)(callbacks, get::<S> as *const c_void);
            (api.on_atomic)(callbacks, atomic::<S> as *const c_void);
            (api.on_rma_blocking)(callbacks, rma_complete::<S> as *const c_void);
            (api.on_rma_complete)(callbacks, rma_complete::<S> as *const c_void);
            (api.on_rma_collective)(callbacks, rma_collective::<S> as *const c_void);
            (api.on_rma_group)(callbacks, rma_group::<S> as *const c_void);
            (api.on_rma_sync)(callbacks, rma_sync::<S> as *const c_void);
            (api.on_rma_release)(callbacks, rma_release::<S> as *const c_void);
            let data = ptr::from_mut(sink).cast();
            let mut code = (api.register_events)(self.reader, events, callbacks, data);
            (api.evt_callbacks_delete)(callbacks);
            if code == 0 {
                code = (api.read_events)(self.reader, events, &mut read);
            }
            code
        };
        let outcome = self.otf2.check(code);
        // SAFETY: `events` came from this reader and is not used after this.
        unsafe { (api.close_events)(self.reader, events) };
        outcome.map_err(|reason| failed(read, reason))?;
        Ok(read)
    }

    /// Closes the event files that [`Archive::select`] opened.
    pub fn close_events(&self) {
        // SAFETY: `reader` is open.
        unsafe { (self.otf2.api.close_evt_files)(self.reader) };
    }
}

/// Appends a definition to the sink behind `data`.
///
/// # Safety
/// `data` is the pointer that [`Archive::definitions`] registered.
unsafe fn define(data: Handle, definition: Definition) -> Code {
    // SAFETY: see above; no other reference to the sink is alive while the library reads.
    unsafe { (*data.cast::<Vec<Definition>>()).push(definition) };
    CONTINUE
}

/// Copies `n` numbers from C.
///
/// # Safety
/// `first` points to `n` numbers, or `n` is 0.
unsafe fn copied<T: Copy>(first: *const T, n: usize) -> Vec<T> {
    if first.is_null() || n == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(first, n) }.to_vec()
}

/// Copies a string from C; empty for NULL.
///
/// # Safety
/// `text` is NULL or a terminated string.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Appends a clock offset to the list behind `data`.
unsafe extern "C" fn clock_offset(data: Handle, time: u64, offset: i64, _deviation: f64) -> Code {
    // SAFETY: `data` is the pointer that `Archive::select` registered; no other reference to the list
    // is alive while the library reads.
    unsafe { (*data.cast::<Vec<ClockOffset>>()).push(ClockOffset { time, offset }) };
    CONTINUE
}

macro_rules! definition_callbacks {
    ($($name:ident($($arg:ident: $type:ty),*) => $definition:expr;)*) => {$(
        unsafe extern "C" fn $name(data: Handle $(, $arg: $type)*) -> Code {
            // SAFETY: called by the library with the user data registered with the function; its
            // target is valid during the call.
            unsafe { define(data, $definition) }
        }
    )*};
}

definition_callbacks! {
    define_clock(ticks_per_second: u64, start: u64, length: u64, realtime: u64) =>
        Definition::Clock { ticks_per_second, start, length, realtime };
    define_string(id: u32, text: *const c_char) => Definition::String { id, text: text_of(text) };
    define_system_tree_node(id: u32, name: u32, class: u32, parent: u32) =>
        Definition::SystemTreeNode { id, name, class, parent };
    define_location_group(id: u32, _name: u32, _kind: u8, parent: u32) =>
        Definition::LocationGroup { id, parent };
    define_location(id: u64, _name: u32, kind: u8, events: u64, group: u32) =>
        Definition::Location { id, kind, group, events };
    define_region(id: u32, name: u32, _canonical: u32, _description: u32, role: u8, paradigm: u8,
        _flags: u32, file: u32, line: u32) =>
        Definition::Region { id, name, role, paradigm, file, line };
    define_site(id: u32, file: u32, line: u32) => Definition::SourceLocation { id, file, line };
    define_context(id: u32, region: u32, site: u32, parent: u32) =>
        Definition::CallingContext { id, region, site, parent };
    define_group(id: u32, _name: u32, kind: u8, paradigm: u8, _flags: u32, n: u32,
        members: *const u64) =>
        Definition::Group { id, kind, paradigm, members: copied(members, n as usize) };
    define_comm(id: u32, name: u32, group: u32) => Definition::Comm { id, name, group };
    define_inter_comm(id: u32, name: u32, group_a: u32, group_b: u32) =>
        Definition::InterComm { id, name, group_a, group_b };
    define_attribute(id: u32, name: u32) => Definition::Attribute { id, name };
    define_window(id: u32, _name: u32, comm: u32, _flags: u32) => Definition::RmaWindow { id, comm };
    define_cart_dimension(id: u32, _name: u32, size: u32) =>
        Definition::CartDimension { id, size };
    define_cart_topology(_id: u32, _name: u32, comm: u32, n: u8, dimensions: *const u32) =>
        Definition::CartTopology { comm, dimensions: copied(dimensions, usize::from(n)) };
}
