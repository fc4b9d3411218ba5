//! Packet framing: three bytes of length, one of sequence, the payload. A payload of 2^24-1 bytes or more goes on in
//! further frames; a [`Packet`] is all of them.

const HEADER: usize = 4;
/// A frame of this length says that another frame of the same payload follows.
const FULL_FRAME: usize = 0xFF_FF_FF;

/// One whole packet, as it came over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    wire: Vec<u8>,
}

impl Packet {
    /// The bytes with their headers, fit to be sent on.
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// The bytes with their headers, without a copy.
    pub fn into_wire(self) -> Vec<u8> {
        self.wire
    }

    /// The payload of the first frame. Everything but a command's text is told from it.
    pub fn head(&self) -> &[u8] {
        let end = HEADER + frame_length(&self.wire).unwrap_or(0);
        self.wire.get(HEADER..end).unwrap_or_default()
    }

    /// Whether the payload is too large for one frame.
    pub fn is_continued(&self) -> bool {
        frame_length(&self.wire) == Some(FULL_FRAME)
    }

    /// The payload of all frames joined.
    pub fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.wire.len());
        let mut rest = self.wire.as_slice();
        while let Some(length) = frame_length(rest) {
            let end = (HEADER + length).min(rest.len());
            payload.extend_from_slice(&rest[HEADER..end]);
            rest = &rest[end..];
        }
        payload
    }
}

/// Bytes of one direction, cut into packets.
#[derive(Debug, Default)]
pub struct Framing {
    buffer: Vec<u8>,
    /// Where the next packet begins; what lies before it was handed out.
    start: usize,
}

impl Framing {
    /// Takes bytes as they were read from the socket.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next packet, once its last frame is here.
    pub fn next_packet(&mut self) -> Option<Packet> {
        let rest = &self.buffer[self.start..];
        let mut end = 0;
        loop {
            let length = frame_length(&rest[end..])?;
            end += HEADER + length;
            if rest.len() < end {
                return None;
            }
            if length < FULL_FRAME {
                break;
            }
        }
        let wire = rest[..end].to_vec();
        self.start += end;
        Some(Packet { wire })
    }

    /// What is left, for a connection that stops being understood.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.buffer.split_off(self.start);
        *self = Self::default();
        rest
    }

    /// How many bytes wait for the rest of their packet, or to be asked for.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }
}

fn frame_length(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [a, b, c, _sequence, ..] => {
            Some(usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16)
        }
        _ => None,
    }
}
