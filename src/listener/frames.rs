//! What HTTP/2 frames a client sends, seen from outside of the engine: how long a header block has been open, and whether
//! there are more control frames than any client needs.
//!
//! The engine bounds what it keeps (header blocks, streams, resets that wait to be seen, small data frames), but neither time
//! nor effort: a header block may take for ever, and a client may have pings and settings answered without end
//! (CVE-2019-9512, CVE-2019-9515). Only frame heads are looked at (RFC 9113 section 4.1); what they mean is the engine's.

use std::time::Duration;

use tokio::time::Instant;

/// Bytes of a client's preface (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;
/// Bytes of a frame's head.
const HEAD_BYTES: usize = 9;
/// Time in which [`BUDGET`] can be spent.
const WINDOW: Duration = Duration::from_secs(4);
/// What frames may cost in one window: some hundred control frames a second, or thousands of window updates.
const BUDGET: u32 = 16 * 1024;
/// Cost of a frame that nothing obliges a client to send often.
const COST: u32 = 16;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// More control frames than any client needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flood;

/// Where in its frames a client is.
#[derive(Debug)]
pub(super) struct Frames {
    preface_left: usize,
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    payload_left: usize,
    block_open: bool,
    spent: u32,
    // When the window began; the clock is read only when a budget is used up.
    window: Instant,
}

impl Frames {
    pub(super) fn new() -> Self {
        Frames {
            preface_left: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            head_filled: 0,
            payload_left: 0,
            block_open: false,
            spent: 0,
            window: Instant::now(),
        }
    }

    /// Whether the client's preface is complete.
    pub(super) fn has_begun(&self) -> bool {
        self.preface_left == 0
    }

    /// Whether a header block has begun and not ended.
    pub(super) fn is_block_open(&self) -> bool {
        self.block_open
    }

    /// Takes the next bytes, however they are cut.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        let preface = bytes.len().min(self.preface_left);
        self.preface_left -= preface;
        bytes = &bytes[preface..];
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let payload = bytes.len().min(self.payload_left);
                self.payload_left -= payload;
                bytes = &bytes[payload..];
            } else {
                let part = bytes.len().min(HEAD_BYTES - self.head_filled);
                self.head[self.head_filled..][..part].copy_from_slice(&bytes[..part]);
                self.head_filled += part;
                bytes = &bytes[part..];
                if self.head_filled < HEAD_BYTES {
                    return Ok(());
                }
                self.begins()?;
            }
            if self.payload_left == 0 && self.head_filled == HEAD_BYTES {
                self.ends();
            }
        }
        Ok(())
    }

    fn kind(&self) -> u8 {
        self.head[3]
    }

    fn has(&self, flag: u8) -> bool {
        self.head[4] & flag != 0
    }

    fn begins(&mut self) -> Result<(), Flood> {
        let [a, b, c, ..] = self.head;
        self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
        match self.kind() {
            HEADERS | CONTINUATION => {
                self.block_open = true;
                // An empty piece of a block brings it no nearer to its end.
                self.spend(if self.payload_left == 0 { COST } else { 0 })
            }
            DATA if self.payload_left > 0 || self.has(END_STREAM) => Ok(()),
            WINDOW_UPDATE => self.spend(1),
            _ => self.spend(COST),
        }
    }

    fn ends(&mut self) {
        self.head_filled = 0;
        if matches!(self.kind(), HEADERS | CONTINUATION) {
            self.block_open = !self.has(END_HEADERS);
        }
    }

    fn spend(&mut self, cost: u32) -> Result<(), Flood> {
        self.spent += cost;
        if self.spent <= BUDGET {
            return Ok(());
        }
        let now = Instant::now();
        if now.duration_since(self.window) < WINDOW {
            return Err(Flood);
        }
        (self.spent, self.window) = (cost, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload).unwrap().to_be_bytes();
        let mut bytes = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD_BYTES + payload, 0xff);
        bytes
    }

    fn begun() -> Frames {
        let mut frames = Frames::new();
        frames.take(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        frames
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_block_is_open_from_its_first_byte_to_its_last_however_it_is_cut() {
        let whole =
            [frame(4, 0, 6), frame(HEADERS, 0, 300), frame(CONTINUATION, 0, 0), frame(CONTINUATION, END_HEADERS, 7)]
                .concat();
        for step in [1, 2, 7, 9, 10, 1_000] {
            let (mut frames, mut open) = (begun(), Vec::new());
            for (at, piece) in whole.chunks(step).enumerate() {
                frames.take(piece).unwrap();
                open.push(((at + 1) * step, frames.is_block_open()));
            }
            for (at, open) in open {
                assert_eq!(open, at >= 15 + HEAD_BYTES && at < whole.len(), "{at} by {step}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_bounded_by_time_and_data_is_not() {
        let flood = |bytes: &[u8], times: u32| {
            let mut frames = begun();
            (0..times).find(|_| frames.take(bytes).is_err())
        };
        let most = BUDGET / COST;
        for kind in [2, 3, 4, 6, 0x42] {
            assert_eq!(flood(&frame(kind, 0, 8), 100_000), Some(most), "{kind}");
        }
        assert_eq!(flood(&frame(DATA, 0, 0), 100_000), Some(most));
        assert_eq!(flood(&frame(CONTINUATION, 0, 0), 100_000), Some(most));
        assert_eq!(flood(&frame(WINDOW_UPDATE, 0, 4), 100_000), Some(BUDGET));
        for harmless in [frame(DATA, 0, 1), frame(DATA, END_STREAM, 0), frame(HEADERS, END_HEADERS, 5)] {
            assert_eq!(flood(&harmless, 100_000), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_comes_back_with_time() {
        let mut frames = begun();
        for _ in 0..20 {
            for _ in 0..BUDGET / COST {
                frames.take(&frame(6, 0, 8)).unwrap();
            }
            tokio::time::advance(WINDOW).await;
        }
    }
}
