//! Archives: what goes in comes out, and nothing leaves its directory.

use std::{
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use groundcrew_core::{
    error::{Error, ErrorKind},
    instance::ByteStream,
};
use groundcrew_supervisor::archive::{pack, unpack};
use tar::{Builder, EntryType, Header};

fn streamed(bytes: &[u8], piece: usize) -> ByteStream {
    let pieces: Vec<_> = bytes
        .chunks(piece)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    stream::iter(pieces).boxed()
}

/// An archive of one entry, whatever its name.
fn evil(name: &str, kind: EntryType, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_mode(0o777);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    builder.into_inner().unwrap()
}

async fn refused(at: &Path, archive: &[u8]) -> Error {
    unpack(at, streamed(archive, 100)).await.unwrap_err()
}

alone! {
    async fn a_tree_goes_there_and_back() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let deep = from.join("a/".to_owned() + &"long-name-".repeat(15));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir_all(from.join("empty")).unwrap();
        let big: Vec<u8> = (0..700_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(deep.join("big"), &big).unwrap();
        std::fs::write(from.join("run"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(from.join("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink("../nowhere/at all", from.join("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, from.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
        unpack(&to, pack(&from).unwrap()).await.unwrap();
        let deep = to.join(deep.strip_prefix(&from).unwrap());
        assert!(std::fs::read(deep.join("big")).unwrap() == big);
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("../nowhere/at all"));
        let mode = |path: &str| to.join(path).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("run"), mode("empty"), mode("a")), (0o700, 0o700, 0o700));
        assert_eq!(deep.join("big").metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(!to.join("fifo").exists());
        // Again over it, with one file changed; and a single file.
        std::fs::write(from.join("run"), "new").unwrap();
        unpack(&to, pack(&from).unwrap()).await.unwrap();
        assert_eq!(std::fs::read(to.join("run")).unwrap(), b"new");
        unpack(&to.join("one"), pack(&from.join("run")).unwrap()).await.unwrap();
        assert_eq!(std::fs::read(to.join("one/run")).unwrap(), b"new");
        assert_eq!(pack(&from.join("missing")).err().unwrap().kind(), ErrorKind::NotFound);
        assert_eq!(pack(Path::new("relative")).err().unwrap().kind(), ErrorKind::InvalidInput);
    }

    async fn f062_no_entry_leaves_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let (inside, outside) = (directory.path().join("inside"), directory.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        std::fs::create_dir(&inside).unwrap();
        symlink(&outside, inside.join("out")).unwrap();
        symlink(outside.join("file"), inside.join("file")).unwrap();
        let outside_file = outside.join("x").to_str().unwrap().to_owned();
        for name in ["../outside/x", "a/../../outside/x", &outside_file, "out/x", "out"] {
            let kind = if name == "out" { EntryType::Directory } else { EntryType::Regular };
            let error = refused(&inside, &evil(name, kind, "", b"evil")).await;
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
        }
        for kind in [EntryType::Link, EntryType::Fifo, EntryType::Char] {
            let error = refused(&inside, &evil("x", kind, "/etc/passwd", b"")).await;
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{kind:?}");
        }
        // A link that is in the way is replaced, not followed.
        unpack(&inside, streamed(&evil("file", EntryType::Regular, "", b"good"), 7)).await.unwrap();
        assert_eq!(std::fs::read(inside.join("file")).unwrap(), b"good");
        // One that comes with the archive leads nowhere either.
        let mut archive = evil("way", EntryType::Symlink, outside.to_str().unwrap(), b"");
        archive.truncate(512);
        archive.extend(evil("way/x", EntryType::Regular, "", b"evil"));
        assert_eq!(refused(&inside, &archive).await.kind(), ErrorKind::InvalidInput);
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }

    async fn a_broken_archive_leaves_no_half_file() {
        let directory = tempfile::tempdir().unwrap();
        let whole = evil("file", EntryType::Regular, "", &[7; 5000]);
        for keep in [100, 600, 3000] {
            let error = refused(directory.path(), &whole[..keep]).await;
            assert_eq!(error.kind(), ErrorKind::Protocol, "{keep}: {error:?}");
        }
        let failing = stream::iter([Ok(Bytes::copy_from_slice(&whole[..2000])), Err(Error::new(ErrorKind::Unavailable, "gone"))]);
        let error = unpack(directory.path(), failing.boxed()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(refused(directory.path(), &[b'x'; 2000]).await.kind(), ErrorKind::Protocol);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
