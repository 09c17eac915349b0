//! XChaCha20-Poly1305 with random nonces: what is sealed is bound to where it belongs, and opens nowhere else.

use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce, aead::AeadInOut as _};
use groundcrew_core::error::{Error, ErrorKind};
use zeroize::Zeroizing;

/// The size of a key, in bytes.
pub const KEY_BYTES: usize = 32;
/// The size of a nonce, in bytes.
const NONCE_BYTES: usize = 24;
/// How much longer the sealed form is: nonce in front, tag behind.
pub(super) const OVERHEAD: usize = NONCE_BYTES + 16;

/// Which key something is sealed with: derived from it, and tells nothing about it.
pub(super) type KeyId = [u8; 8];

/// A key; wiped when dropped, never shown.
pub(super) struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Makes a random one.
    pub(super) fn generate() -> Result<Self, Error> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        random(&mut *bytes)?;
        Ok(Self(bytes))
    }

    /// Takes the bytes of one; `None` when there are not as many as there must be, or they are all the same.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if bytes.len() != KEY_BYTES || bytes.iter().all(|byte| Some(byte) == bytes.first()) {
            return None;
        }
        key.copy_from_slice(bytes);
        Some(Self(key))
    }

    /// Gives out the bytes, to be sealed or written to the key file.
    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }

    /// Returns its id: the first half of the tag of an empty message.
    pub(super) fn id(&self) -> Result<KeyId, Error> {
        let nonce = XNonce::from([0; NONCE_BYTES]);
        let mut tag = Vec::with_capacity(16);
        self.cipher()
            .encrypt_in_place(&nonce, b"groundcrew key id", &mut tag)
            .map_err(|_| unsealable())?;
        tag.first_chunk().copied().ok_or_else(unsealable)
    }

    /// Seals a text for a place: a nonce, then what is hidden, then the tag.
    pub(super) fn seal(&self, place: &[u8], text: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce)?;
        // Large enough from the start: a buffer that moves leaves the text behind.
        let mut body = Zeroizing::new(Vec::with_capacity(text.len() + OVERHEAD));
        body.extend_from_slice(text);
        self.cipher()
            .encrypt_in_place(&XNonce::from(nonce), place, &mut *body)
            .map_err(|_| unsealable())?;
        let mut sealed = Vec::with_capacity(NONCE_BYTES + body.len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    /// Opens what was sealed for a place; `None` when anything about it is not as it was.
    pub(super) fn open(&self, place: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let mut text = Zeroizing::new(body.to_vec());
        self.cipher()
            .decrypt_in_place(&XNonce::from(*nonce), place, &mut *text)
            .ok()?;
        Some(text)
    }
}

fn random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the system gives no random numbers")
            .with_source(error.to_string())
    })
}

fn unsealable() -> Error {
    Error::new(ErrorKind::Unexpected, "a secret cannot be sealed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w24_what_is_sealed_opens_only_where_it_belongs_and_whole() {
        let key = Key::generate().unwrap();
        let sealed = key.seal(b"here", b"text").unwrap();
        assert_eq!(sealed.len(), 4 + OVERHEAD);
        assert_eq!(&**key.open(b"here", &sealed).unwrap(), b"text");
        assert!(key.open(b"there", &sealed).is_none());
        assert!(Key::generate().unwrap().open(b"here", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut other = sealed.clone();
            other[at] ^= 1;
            assert!(key.open(b"here", &other).is_none(), "byte {at}");
            assert!(key.open(b"here", &sealed[..at]).is_none(), "length {at}");
        }
        assert_ne!(sealed, key.seal(b"here", b"text").unwrap());
    }

    /// The vector of the draft that defines XChaCha20-Poly1305 (A.3.1): the algorithm is the one that its name says.
    #[test]
    fn the_cipher_is_the_one_of_the_draft() {
        let key: Vec<u8> = (0x80..0xa0).collect();
        let key = Key::from_bytes(&key).unwrap();
        let place = [
            0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
        ];
        let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
        let nonce: [u8; 24] = std::array::from_fn(|n| 0x40 + u8::try_from(n).unwrap());
        let mut body = text.to_vec();
        key.cipher()
            .encrypt_in_place(&XNonce::from(nonce), &place, &mut body)
            .unwrap();
        assert_eq!(body[..8], [0xbd, 0x6d, 0x17, 0x9d, 0x3e, 0x83, 0xd4, 0x3b]);
        assert_eq!(
            body[text.len()..],
            [
                0xc0, 0x87, 0x59, 0x24, 0xc1, 0xc7, 0x98, 0x79, 0x47, 0xde, 0xaf, 0xd8, 0x78, 0x0a,
                0xcf, 0x49
            ]
        );
    }

    #[test]
    fn keys_of_another_size_or_of_one_byte_are_none() {
        for bytes in [&b""[..], &[1; 31], &[1; 33], &[0; 32], &[7; 32]] {
            assert!(Key::from_bytes(bytes).is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn f144_a_key_is_not_shown_and_its_id_is_its_own() {
        let key = Key::from_bytes(b"0123456789abcdef0123456789abcdef").unwrap();
        assert!(!format!("{key:?}").contains("0123"));
        assert_eq!(key.id().unwrap(), key.id().unwrap());
        assert_ne!(key.id().unwrap(), Key::generate().unwrap().id().unwrap());
    }
}
