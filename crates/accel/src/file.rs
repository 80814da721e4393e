//! An open node. The one place of this crate with `unsafe`.

#![allow(unsafe_code)]

use crate::DriverVersion;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

#[repr(C)]
struct DrmVersion {
    major: i32,
    minor: i32,
    patch: i32,
    name_len: u64,
    name: u64,
    date_len: u64,
    date: u64,
    desc_len: u64,
    desc: u64,
}

#[repr(C)]
struct GemClose {
    handle: u32,
    pad: u32,
}

const GEM_CLOSE: Opcode = 0x4008_6409;
const DRM_VERSION: Opcode = 0xc040_6400;

/// Bytes of the argument that an ioctl's number states: bits 16 to 29.
pub const fn argument_bytes(opcode: Opcode) -> usize {
    (opcode as usize >> 16) & 0x3fff
}

/// A call whose argument is one structure and whose answer is a number that is not negative.
struct SysCall<'t, T, const OPCODE: Opcode>(&'t mut T);

// SAFETY: `T` has the size that the opcode states (asserted in `AccelFile::call`). The caller of `AccelFile::call`
// promises that it is laid out as the kernel's structure.
unsafe impl<T, const OPCODE: Opcode> Ioctl for SysCall<'_, T, OPCODE> {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<i32, Errno> {
        Ok(output)
    }
}

/// An open node of `/dev/accel`.
#[derive(Debug)]
pub struct AccelFile {
    fd: OwnedFd,
}

impl AccelFile {
    /// Opens a node anew: another open file with separate objects.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(path: &str) -> Result<AccelFile, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(AccelFile { fd })
    }

    /// An ioctl whose argument is one structure. Gives the kernel's answer, 0 or more.
    ///
    /// # Safety
    /// `T` is `repr(C)` and laid out as the structure of that number. Every address in it is that of memory which the kernel may read or
    /// write as the number says, until the call returns.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub unsafe fn call<T, const OPCODE: Opcode>(&self, argument: &mut T) -> Result<i32, Errno> {
        const { assert!(size_of::<T>() == argument_bytes(OPCODE)) };
        // SAFETY: the descriptor is open; the rest is the caller's promise.
        unsafe { ioctl(self.fd.as_fd(), SysCall::<T, OPCODE>(argument)) }
    }

    /// DRM_VERSION.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub fn version(&self) -> Result<DriverVersion, Errno> {
        let (mut name, mut description) = ([0u8; 64], [0u8; 256]);
        let mut version = DrmVersion {
            major: 0,
            minor: 0,
            patch: 0,
            name_len: name.len() as u64,
            name: name.as_mut_ptr() as u64,
            date_len: 0,
            date: 0,
            desc_len: description.len() as u64,
            desc: description.as_mut_ptr() as u64,
        };
        // SAFETY: the structure is that of `drm.h`. The kernel writes at most as many bytes to each address as the
        // length beside it says; these are the lengths of arrays that outlive the call.
        unsafe { self.call::<_, DRM_VERSION>(&mut version)? };
        let text = |bytes: &[u8], len: u64| {
            let len = (len as usize).min(bytes.len());
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        };
        Ok(DriverVersion {
            name: text(&name, version.name_len),
            description: text(&description, version.desc_len),
            numbers: (version.major, version.minor, version.patch),
        })
    }

    /// GEM_CLOSE: gives a buffer object's handle back.
    ///
    /// # Errors
    /// As `ioctl(2)`: EINVAL for no such handle.
    pub fn gem_close(&self, handle: u32) -> Result<(), Errno> {
        let mut argument = GemClose { handle, pad: 0 };
        // SAFETY: the structure is that of `drm.h` and holds no address.
        unsafe { self.call::<_, GEM_CLOSE>(&mut argument).map(|_| ()) }
    }

    /// Maps a buffer object: `len_bytes` from an offset that the kernel gave for it, at an address that is a
    /// multiple of `align_bytes` (a power of two; 1 where it does not matter).
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub fn map(
        &self,
        offset: u64,
        len_bytes: usize,
        align_bytes: usize,
    ) -> Result<FileMapping, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Reserves more than is needed, so that the range holds a multiple; no pages are behind it.
        let more = if align_bytes > 4096 { align_bytes } else { 0 };
        let reserved_bytes = len_bytes.checked_add(more).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address; nothing of this process is mapped there.
        let reserved =
            unsafe { mmap_anonymous(null_mut(), reserved_bytes, ProtFlags::empty(), flags)? };
        let skipped = reserved.cast::<u8>().align_offset(align_bytes.max(1));
        let mut mapping = FileMapping {
            reserved: NonNull::new(reserved).ok_or(Errno::NOMEM)?,
            reserved_bytes,
            skipped_bytes: skipped.min(more),
            len_bytes,
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let at = mapping.as_mut_ptr().cast();
        // SAFETY: the address is within the reservation above, which nobody else knows of.
        unsafe { mmap(at, len_bytes, access, flags, &self.fd, offset)? };
        Ok(mapping)
    }
}

/// The monotonic clock in nanoseconds; deadlines of waits are on this clock.
pub fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// A buffer object in this process's memory; unmapped when dropped. The device writes to it while a command that uses
/// it runs: the holder reads it before and after, not during.
#[derive(Debug)]
pub struct FileMapping {
    reserved: NonNull<c_void>,
    reserved_bytes: usize,
    skipped_bytes: usize,
    len_bytes: usize,
}

// SAFETY: the memory belongs to the mapping alone, on any thread.
unsafe impl Send for FileMapping {}

impl FileMapping {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: skipped and mapped bytes together are within the reservation.
        unsafe { self.reserved.as_ptr().cast::<u8>().add(self.skipped_bytes) }
    }
}

impl Deref for FileMapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len_bytes` are mapped for reading from there as long as the mapping lives, and are not a
        // file's that could shrink.
        unsafe {
            let start = self.reserved.as_ptr().cast::<u8>().add(self.skipped_bytes);
            std::slice::from_raw_parts(start, self.len_bytes)
        }
    }
}

impl DerefMut for FileMapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, for writing too; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len_bytes) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the reservation, with everything mapped into it, belongs to this mapping, which ends here.
        let _ = unsafe { munmap(self.reserved.as_ptr(), self.reserved_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Structure, offsets};

    #[test]
    fn structures_are_those_of_drm_h() {
        let version = Structure {
            name: "drm_version",
            size_bytes: size_of::<DrmVersion>(),
            offsets: offsets!(DrmVersion {
                version_major: major,
                name_len,
                name,
                date: date,
                desc
            }),
        };
        let close = Structure {
            name: "drm_gem_close",
            size_bytes: size_of::<GemClose>(),
            offsets: offsets!(GemClose { handle, pad }),
        };
        let numbers = [
            ("DRM_IOCTL_VERSION", u64::from(DRM_VERSION)),
            ("DRM_IOCTL_GEM_CLOSE", u64::from(GEM_CLOSE)),
        ];
        crate::header::check("drm/drm.h", &[version, close], &numbers);
        assert_eq!(argument_bytes(DRM_VERSION), size_of::<DrmVersion>());
    }

    #[test]
    fn a_file_that_is_no_device_answers_with_errors() {
        let file = AccelFile::open("/dev/null").unwrap();
        assert!(file.version().is_err());
        assert!(file.gem_close(1).is_err());
        assert!(file.map(0, 4096, 1).is_err());
        let none = AccelFile::open("/dev/accel/none");
        assert_eq!(none.err(), Some(Errno::NOENT));
    }

    /// A mapping has the alignment that was asked for, and the bytes of the object that it maps.
    #[test]
    fn mappings_are_aligned_as_asked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let open = AccelFile::open(file.path().to_str().unwrap()).unwrap();
        for (align, last) in [(1, 0), (4096, 7), (64 << 20, 7)] {
            let mut mapping = open.map(4096, 4096, align).unwrap();
            assert_eq!(mapping.len(), 4096);
            assert!(mapping.as_ptr().addr().is_multiple_of(align), "{align}");
            assert_eq!(mapping[4095], last);
            mapping[4095] = 7;
        }
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!((bytes[4095], bytes[8191]), (0, 7));
    }
}
