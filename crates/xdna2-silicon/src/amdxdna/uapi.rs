//! Structures and numbers of `drm/amdxdna_accel.h`.

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[allow(missing_docs)] // Fields have the header's names.
            pub struct $name { $(pub $field: $kind,)* }

            impl $name {
                /// Bytes of the structure.
                pub const SIZE: usize = 0 $(+ size_of::<$kind>())*;

                /// As it lies in memory.
                pub fn to_bytes(self) -> Vec<u8> {
                    let mut bytes = Vec::with_capacity(Self::SIZE);
                    $(bytes.extend(self.$field.to_le_bytes());)*
                    bytes
                }

                /// From memory; `None` for another number of bytes.
                pub fn from_bytes(bytes: &[u8]) -> Option<$name> {
                    if bytes.len() != Self::SIZE {
                        return None;
                    }
                    let mut rest = bytes;
                    Some($name { $($field: {
                        let (own, after) = rest.split_at(size_of::<$kind>());
                        rest = after;
                        let _ = rest;
                        <$kind>::from_le_bytes(own.try_into().ok()?)
                    },)* })
                }

                /// Name and offset of each field.
                pub fn offsets() -> Vec<(&'static str, usize)> {
                    let mut at = 0;
                    let mut offsets = Vec::new();
                    $(
                        offsets.push((stringify!($field), at));
                        at += size_of::<$kind>();
                    )*
                    let _ = at;
                    offsets
                }
            }
        )*
    };
}

structures! {
    /// A context on columns of the array.
    CreateHwctx {
        ext: u64, ext_flags: u64, qos_p: u64, umq_bo: u32, log_buf_bo: u32, max_opc: u32, num_tiles: u32,
        mem_size: u32, umq_doorbell: u32, handle: u32, syncobj_handle: u32,
    }
    /// The end of a context.
    DestroyHwctx { handle: u32, pad: u32 }
    /// What a context wants.
    QosInfo { gops: u32, fps: u32, dma_bandwidth: u32, latency: u32, frame_exec_time: u32, priority: u32 }
    /// A parameter of a context.
    ConfigHwctx { handle: u32, param_type: u32, param_val: u64, param_val_size: u32, pad: u32 }
    /// A buffer object.
    CreateBo { flags: u64, vaddr: u64, size: u64, kind: u32, handle: u32 }
    /// Where a buffer object is.
    GetBoInfo {
        ext: u64, ext_flags: u64, handle: u32, pad: u32, map_offset: u64, vaddr: u64, xdna_addr: u64,
    }
    /// A cache written back.
    SyncBo { handle: u32, direction: u32, offset: u64, size: u64 }
    /// Commands to execute.
    ExecCmd {
        ext: u64, ext_flags: u64, hwctx: u32, kind: u32, cmd_handles: u64, args: u64, cmd_count: u32,
        arg_count: u32, seq: u64,
    }
    /// A question.
    GetInfo { param: u32, buffer_size: u32, buffer: u64 }
    /// The firmware's version.
    QueryFirmwareVersion { major: u32, minor: u32, patch: u32, build: u32 }
}

/// GET_INFO: the firmware's version.
pub const QUERY_FIRMWARE_VERSION: u32 = 8;

/// An `ioctl` number: direction, size, `d`, number from 0x40 on.
const fn ioctl(direction: u32, size: usize, number: u32) -> u32 {
    direction << 30 | (size as u32) << 16 | 0x64 << 8 | (0x40 + number)
}

/// CREATE_HWCTX.
pub const CREATE_HWCTX: u32 = ioctl(3, CreateHwctx::SIZE, 0);
/// DESTROY_HWCTX.
pub const DESTROY_HWCTX: u32 = ioctl(3, DestroyHwctx::SIZE, 1);
/// CONFIG_HWCTX.
pub const CONFIG_HWCTX: u32 = ioctl(3, ConfigHwctx::SIZE, 2);
/// CREATE_BO.
pub const CREATE_BO: u32 = ioctl(3, CreateBo::SIZE, 3);
/// GET_BO_INFO.
pub const GET_BO_INFO: u32 = ioctl(3, GetBoInfo::SIZE, 4);
/// SYNC_BO.
pub const SYNC_BO: u32 = ioctl(3, SyncBo::SIZE, 5);
/// EXEC_CMD.
pub const EXEC_CMD: u32 = ioctl(3, ExecCmd::SIZE, 6);
/// GET_INFO.
pub const GET_INFO: u32 = ioctl(3, GetInfo::SIZE, 7);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        let numbers = [
            CREATE_HWCTX,
            DESTROY_HWCTX,
            CONFIG_HWCTX,
            CREATE_BO,
            GET_BO_INFO,
            SYNC_BO,
            EXEC_CMD,
            GET_INFO,
        ];
        let expected = [
            0xC038_6440,
            0xC008_6441,
            0xC018_6442,
            0xC020_6443,
            0xC030_6444,
            0xC018_6445,
            0xC038_6446,
            0xC010_6447,
        ];
        assert_eq!(numbers, expected);
        assert_eq!((QosInfo::SIZE, QueryFirmwareVersion::SIZE), (24, 16));
    }

    /// A C compiler puts no padding anywhere: every field lies at a multiple of its size.
    #[test]
    fn structures_have_no_holes() {
        let all = [
            (CreateHwctx::offsets(), CreateHwctx::SIZE),
            (ConfigHwctx::offsets(), ConfigHwctx::SIZE),
            (CreateBo::offsets(), CreateBo::SIZE),
            (GetBoInfo::offsets(), GetBoInfo::SIZE),
            (SyncBo::offsets(), SyncBo::SIZE),
            (ExecCmd::offsets(), ExecCmd::SIZE),
            (GetInfo::offsets(), GetInfo::SIZE),
        ];
        for (offsets, size) in all {
            let ends = offsets.iter().skip(1).map(|row| row.1).chain([size]);
            for ((name, at), end) in offsets.iter().zip(ends) {
                assert_eq!(at % (end - at), 0, "{name}");
            }
            assert_eq!(size % 8, 0);
        }
        let offset = |name| ExecCmd::offsets().into_iter().find(|row| row.0 == name);
        assert_eq!(offset("seq"), Some(("seq", 48)));
    }

    #[test]
    fn structures_are_read_as_they_were_written() {
        let exec = ExecCmd {
            hwctx: 3,
            cmd_handles: 1 << 40,
            arg_count: 7,
            seq: u64::MAX,
            ..ExecCmd::default()
        };
        assert_eq!(ExecCmd::from_bytes(&exec.to_bytes()), Some(exec));
        assert_eq!(ExecCmd::from_bytes(&exec.to_bytes()[1..]), None);
    }
}
