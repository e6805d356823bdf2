package dynamostore

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// encodingZlib is the name of the only compression: DEFLATE with a checksum (RFC 1950).
	encodingZlib = "zlib"

	// level makes JSON up to a tenth smaller than level 1, which DynamoDB bills, in a third
	// more time. Higher levels gain less, and over some texts take ten times as long.
	level = 2

	// compressAbove is the size from which compression pays: every later failed
	// condition on the record is billed by started kilobytes.
	compressAbove = 2 << 10
	// inlineUpTo is the largest stored form kept in the record itself.
	inlineUpTo = 4 << 10
)

// codec compresses results. Its writers and readers have large tables and are used
// again. The zero value is ready.
type codec struct{ writers, readers sync.Pool }

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
		if small := c.compress(result); len(small) < len(result) {
			b.Data, b.Encoding, b.Stored = small, encodingZlib, len(small)
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
	case encodingZlib:
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

func (c *codec) compress(b []byte) []byte {
	out := bytes.NewBuffer(make([]byte, 0, len(b)/2))
	w, ok := c.writers.Get().(*zlib.Writer)
	if !ok {
		w, _ = zlib.NewWriterLevel(nil, level) // which fails for a wrong level only
	}
	defer c.writers.Put(w)
	w.Reset(out)
	_, _ = w.Write(b) // a buffer takes all
	_ = w.Close()
	return out.Bytes()
}

// decompress expands to size bytes and no more: anything else is an error.
func (c *codec) decompress(b []byte, size int) ([]byte, error) {
	src := bytes.NewReader(b)
	r, err := c.reader(src)
	if err != nil {
		return nil, err
	}
	defer c.readers.Put(r)
	out := make([]byte, size)
	if _, err = io.ReadFull(r, out); err != nil {
		return nil, err
	}
	// The checksum is looked at where the end is read.
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return nil, fmt.Errorf("it has more than %d bytes", size)
	case !errors.Is(err, io.EOF):
		return nil, err
	case src.Len() > 0:
		return nil, fmt.Errorf("%d bytes follow its end", src.Len())
	}
	return out, nil
}

func (c *codec) reader(src *bytes.Reader) (io.Reader, error) {
	if r, ok := c.readers.Get().(io.Reader); ok {
		return r, r.(zlib.Resetter).Reset(src, nil)
	}
	return zlib.NewReader(src)
}
