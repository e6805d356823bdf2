package dynamostore

import (
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// encodingZstd is the name of the only compression: at its fastest level it
	// makes JSON of 2 to 100 KB smaller than DEFLATE at its fastest and about as
	// small as DEFLATE at level 6, in a half to a seventh of their time (see
	// BenchmarkCompression).
	encodingZstd = "zstd"

	// compressAbove is the size from which compression pays: every later failed
	// condition on the record is billed by started kilobytes.
	compressAbove = 2 << 10
	// inlineUpTo is the largest stored form kept in the record itself.
	inlineUpTo = 4 << 10

	// window is zstd's memory of what it has seen; results are seldom larger, and
	// the encoder's tables grow with it.
	window = 128 << 10
)

// codec compresses results. Its encoder and decoder are made when first needed,
// which most processes never do. The zero value is ready.
type codec struct {
	once struct{ enc, dec sync.Once }
	enc  *zstd.Encoder
	dec  *zstd.Decoder
	err  error
}

// pack makes the stored form of an encoded result. The same result always gives
// the same form: a write that is repeated must be identical.
func (c *codec) pack(result []byte) protocol.Body { return c.packUpTo(result, inlineUpTo) }

// packUpTo keeps stored forms of up to inline bytes in the record.
func (c *codec) packUpTo(result []byte, inline int) protocol.Body {
	b := c.smaller(result)
	place(&b, inline)
	return b
}

// smaller compresses the result if that pays.
func (c *codec) smaller(result []byte) protocol.Body {
	b := protocol.Body{Data: result, Size: len(result), Stored: len(result)}
	if b.Data == nil {
		b.Data = []byte{}
	}
	if len(result) > compressAbove {
		if small, ok := c.compress(result); ok && len(small) < len(result) {
			b.Data, b.Encoding, b.Stored = small, encodingZstd, len(small)
		}
	}
	return b
}

// unpack makes the result of its stored form. The result is the caller's own.
func (c *codec) unpack(b protocol.Body, stored []byte) ([]byte, error) {
	switch b.Encoding {
	case "":
		if b.Parts == 0 {
			stored = slices.Clone(stored)
		}
	case encodingZstd:
		var err error
		if stored, err = c.decompress(stored, b.Size); err != nil {
			return nil, fmt.Errorf("its result cannot be decompressed: %w", err)
		}
	default:
		return nil, fmt.Errorf("its result is encoded as %q, which this code cannot decompress", b.Encoding)
	}
	if len(stored) != b.Size {
		return nil, fmt.Errorf("its result has %d bytes and should have %d", len(stored), b.Size)
	}
	return stored, nil
}

// compress returns false if there is no encoder: the result is then stored plain.
func (c *codec) compress(b []byte) ([]byte, bool) {
	c.once.enc.Do(func() {
		// One encoder: it takes a fraction of a millisecond, and each has its tables.
		c.enc, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	})
	if c.enc == nil {
		return nil, false
	}
	return c.enc.EncodeAll(b, make([]byte, 0, len(b)/2)), true
}

// decompress expands to size bytes and no more.
func (c *codec) decompress(b []byte, size int) ([]byte, error) {
	c.once.dec.Do(func() {
		c.dec, c.err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(resultLimit), zstd.WithDecodeAllCapLimit(true))
	})
	if c.err != nil {
		return nil, c.err
	}
	return c.dec.DecodeAll(b, make([]byte, 0, size))
}
