//! Structures and numbers of `drm/amdxdna_accel.h`, and those of `drm/drm.h` that its contexts need.

use rustix::ioctl::Opcode;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident = $c:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[allow(missing_docs)] // Fields have the header's names.
            pub struct $name { $(pub $field: $kind,)* }
        )*

        /// All of them, with the header's names.
        #[cfg(test)]
        fn all() -> Vec<millrace_accel::header::Structure> {
            vec![$(millrace_accel::header::Structure {
                name: stringify!($c),
                size_bytes: size_of::<$name>(),
                offsets: vec![$((
                    stringify!($field).trim_start_matches("r#"),
                    std::mem::offset_of!($name, $field),
                )),*],
            }),*]
        }
    };
}

structures! {
    /// A context on columns of the array.
    CreateHwctx = amdxdna_drm_create_hwctx {
        ext: u64, ext_flags: u64, qos_p: u64, umq_bo: u32, log_buf_bo: u32, max_opc: u32, num_tiles: u32,
        mem_size: u32, umq_doorbell: u32, handle: u32, syncobj_handle: u32,
    }
    /// The end of a context.
    DestroyHwctx = amdxdna_drm_destroy_hwctx { handle: u32, pad: u32 }
    /// Requirements of a context.
    QosInfo = amdxdna_qos_info {
        gops: u32, fps: u32, dma_bandwidth: u32, latency: u32, frame_exec_time: u32, priority: u32,
    }
    /// A buffer object.
    CreateBo = amdxdna_drm_create_bo { flags: u64, vaddr: u64, size: u64, r#type: u32, handle: u32 }
    /// Where a buffer object is.
    GetBoInfo = amdxdna_drm_get_bo_info {
        ext: u64, ext_flags: u64, handle: u32, pad: u32, map_offset: u64, vaddr: u64, xdna_addr: u64,
    }
    /// A cache written back.
    SyncBo = amdxdna_drm_sync_bo { handle: u32, direction: u32, offset: u64, size: u64 }
    /// Commands to execute.
    ExecCmd = amdxdna_drm_exec_cmd {
        ext: u64, ext_flags: u64, hwctx: u32, r#type: u32, cmd_handles: u64, args: u64, cmd_count: u32,
        arg_count: u32, seq: u64,
    }
    /// A question.
    GetInfo = amdxdna_drm_get_info { param: u32, buffer_size: u32, buffer: u64 }
    /// The array's version.
    QueryAieVersion = amdxdna_drm_query_aie_version { major: u32, minor: u32 }
    /// Resources of a kind of tile.
    QueryTileMetadata = amdxdna_drm_query_aie_tile_metadata {
        row_count: u16, row_start: u16, dma_channel_count: u16, lock_count: u16, event_reg_count: u16,
        pad: [u16; 3],
    }
    /// Resources of the array.
    QueryAieMetadata = amdxdna_drm_query_aie_metadata {
        col_size: u32, cols: u16, rows: u16, version: QueryAieVersion, core: QueryTileMetadata,
        mem: QueryTileMetadata, shim: QueryTileMetadata,
    }
    /// The firmware's version.
    QueryFirmwareVersion = amdxdna_drm_query_firmware_version { major: u32, minor: u32, patch: u32, build: u32 }
    /// A wait for points on timelines.
    SyncobjTimelineWait = drm_syncobj_timeline_wait {
        handles: u64, points: u64, timeout_nsec: i64, count_handles: u32, flags: u32, first_signaled: u32,
        pad: u32, deadline_nsec: u64,
    }
    /// The end of a timeline.
    SyncobjDestroy = drm_syncobj_destroy { handle: u32, pad: u32 }
}

/// GET_INFO: the array's metadata.
pub const QUERY_AIE_METADATA: u32 = 1;
/// GET_INFO: the array's version.
pub const QUERY_AIE_VERSION: u32 = 2;
/// GET_INFO: the firmware's version.
pub const QUERY_FIRMWARE_VERSION: u32 = 8;
/// A context of no special urgency.
pub const NORMAL_PRIORITY: u32 = 0x200;
/// A wait may begin before the point has been submitted.
pub const WAIT_FOR_SUBMIT: u32 = 1 << 1;

/// An `ioctl` number that reads and writes its argument: direction, size, `d`, number.
const fn number<T>(number: u32) -> Opcode {
    3 << 30 | (size_of::<T>() as u32) << 16 | 0x64 << 8 | number
}

/// CREATE_HWCTX.
pub const CREATE_HWCTX: Opcode = number::<CreateHwctx>(0x40);
/// DESTROY_HWCTX.
pub const DESTROY_HWCTX: Opcode = number::<DestroyHwctx>(0x41);
/// CREATE_BO.
pub const CREATE_BO: Opcode = number::<CreateBo>(0x43);
/// GET_BO_INFO.
pub const GET_BO_INFO: Opcode = number::<GetBoInfo>(0x44);
/// SYNC_BO.
pub const SYNC_BO: Opcode = number::<SyncBo>(0x45);
/// EXEC_CMD.
pub const EXEC_CMD: Opcode = number::<ExecCmd>(0x46);
/// GET_INFO.
pub const GET_INFO: Opcode = number::<GetInfo>(0x47);
/// SYNCOBJ_DESTROY of `drm.h`.
pub const SYNCOBJ_DESTROY: Opcode = number::<SyncobjDestroy>(0xC0);
/// SYNCOBJ_TIMELINE_WAIT of `drm.h`.
pub const SYNCOBJ_TIMELINE_WAIT: Opcode = number::<SyncobjTimelineWait>(0xCA);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amdxdna::{BoKind, SyncTo};
    use millrace_accel::header;

    fn numbers() -> [(&'static str, u64); 9] {
        [
            ("DRM_IOCTL_AMDXDNA_CREATE_HWCTX", CREATE_HWCTX.into()),
            ("DRM_IOCTL_AMDXDNA_DESTROY_HWCTX", DESTROY_HWCTX.into()),
            ("DRM_IOCTL_AMDXDNA_CREATE_BO", CREATE_BO.into()),
            ("DRM_IOCTL_AMDXDNA_GET_BO_INFO", GET_BO_INFO.into()),
            ("DRM_IOCTL_AMDXDNA_SYNC_BO", SYNC_BO.into()),
            ("DRM_IOCTL_AMDXDNA_EXEC_CMD", EXEC_CMD.into()),
            ("DRM_IOCTL_AMDXDNA_GET_INFO", GET_INFO.into()),
            ("DRM_IOCTL_SYNCOBJ_DESTROY", SYNCOBJ_DESTROY.into()),
            (
                "DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT",
                SYNCOBJ_TIMELINE_WAIT.into(),
            ),
        ]
    }

    /// As a C compiler computed them from the header.
    #[test]
    fn numbers_and_sizes_are_those_of_the_header() {
        let expected = [
            0xC038_6440,
            0xC008_6441,
            0xC020_6443,
            0xC030_6444,
            0xC018_6445,
            0xC038_6446,
            0xC010_6447,
            0xC008_64C0,
            0xC030_64CA,
        ];
        assert_eq!(numbers().map(|row| row.1), expected);
        let sizes: Vec<usize> = all().iter().map(|one| one.size_bytes).collect();
        assert_eq!(sizes, [56, 8, 24, 32, 48, 24, 56, 16, 8, 16, 64, 16, 48, 8]);
    }

    /// A C compiler has no holes to fill: every field begins where the one before ends.
    #[test]
    fn structures_have_no_holes() {
        for structure in all() {
            let ends = structure.offsets.iter().skip(1).map(|row| row.1);
            let ends = ends.chain([structure.size_bytes]);
            for ((field, at), end) in structure.offsets.iter().zip(ends) {
                let size = end - at;
                let align = size & size.wrapping_neg();
                assert_eq!(at % align.min(8), 0, "{}.{field}", structure.name);
            }
        }
    }

    #[test]
    fn the_header_agrees() {
        let mut numbers = numbers().to_vec();
        numbers.extend([
            ("DRM_AMDXDNA_QUERY_AIE_METADATA", QUERY_AIE_METADATA.into()),
            ("DRM_AMDXDNA_QUERY_AIE_VERSION", QUERY_AIE_VERSION.into()),
            (
                "DRM_AMDXDNA_QUERY_FIRMWARE_VERSION",
                QUERY_FIRMWARE_VERSION.into(),
            ),
            ("AMDXDNA_QOS_NORMAL_PRIORITY", NORMAL_PRIORITY.into()),
            (
                "DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT",
                WAIT_FOR_SUBMIT.into(),
            ),
            ("AMDXDNA_BO_SHMEM", BoKind::Share as u64),
            ("AMDXDNA_BO_DEV_HEAP", BoKind::DevHeap as u64),
            ("AMDXDNA_BO_DEV", BoKind::Dev as u64),
            ("AMDXDNA_BO_CMD", BoKind::Command as u64),
            ("SYNC_DIRECT_TO_DEVICE", SyncTo::Device as u64),
            ("SYNC_DIRECT_FROM_DEVICE", SyncTo::Host as u64),
            ("AMDXDNA_CMD_SUBMIT_EXEC_BUF", 0),
        ]);
        header::check("drm/amdxdna_accel.h", &all(), &numbers);
    }
}
