package fingerprint

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"

	"github.com/idem-go/idempotency/idem/internal/canonical"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Builder puts a fingerprint together from named fields, such as the
// method, the route, its path parameters, the query and the body of a request.
// Every name and value goes in with its length and every field with its kind, so
// two different lists of fields never run together to the same digest; the order
// of the calls counts.
//
// The zero value is ready to use. Errors stay until [Builder.Sum]. A
// builder is for one fingerprint and one goroutine.
type Builder struct {
	// buf holds what is not hashed yet; hash is nil until a field is too large to
	// be worth a copy.
	buf    []byte
	hash   hash.Hash
	fields int
	err    error
}

// Kinds of fields. The digest covers these letters: they never change.
const (
	fieldText     = 's'
	fieldMap      = 'm'
	fieldBytes    = 'b'
	fieldJSON     = 'j'
	fieldSelected = 'o'
)

// copyUpTo is the size in bytes up to which a value is gathered before hashing.
const copyUpTo = 4 << 10

// Text adds a string as it is.
func (b *Builder) Text(name, value string) {
	b.begin(fieldText, name, len(value))
	b.string(value)
}

// Map adds names with one value each, whatever their order. It is the same as
// [Builder.Values] with lists of one. A nil map is an empty one.
func (b *Builder) Map(name string, values map[string]string) {
	b.begin(fieldMap, name, 0)
	b.length(len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b.string(key)
		b.length(1)
		b.string(values[key])
	}
}

// Values adds names with any number of values each: whatever the order of the
// names, but in the order of each name's values.
func (b *Builder) Values(name string, values map[string][]string) {
	b.begin(fieldMap, name, 0)
	b.length(len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b.string(key)
		b.length(len(values[key]))
		for _, value := range values[key] {
			b.string(value)
		}
	}
}

// Bytes adds bytes as they are. They are not kept.
func (b *Builder) Bytes(name string, raw []byte) {
	if len(raw) <= copyUpTo {
		b.begin(fieldBytes, name, len(raw))
		b.length(len(raw))
		b.buf = append(b.buf, raw...)
		return
	}
	b.begin(fieldBytes, name, 0)
	b.length(len(raw))
	b.flush()
	b.hash.Write(raw)
}

// JSON adds a JSON text by its meaning, as [JSON] does, with the same
// errors: Sum returns them.
func (b *Builder) JSON(name string, raw []byte, sel *Select) {
	if b.err != nil {
		return
	}
	if b.err = sel.Check(); b.err != nil {
		return
	}
	if sel.only() {
		b.selected(name, raw, sel)
		return
	}
	b.begin(fieldJSON, name, len(raw))
	b.length(0) // filled in when the canonical text is there
	start := len(b.buf)
	var err error
	if b.buf, err = canonical.Append(b.buf, raw); err != nil {
		b.err = notCanonical(err)
		return
	}
	if sel != nil {
		b.buf = b.buf[:start+len(canonical.Cut(b.buf[start:], sel.Without))]
	}
	binary.BigEndian.PutUint64(b.buf[start-8:], uint64(len(b.buf)-start))
}

// selected adds the values that sel selects, each with its pointer.
func (b *Builder) selected(name string, raw []byte, sel *Select) {
	document, err := canonical.Append(make([]byte, 0, len(raw)), raw)
	if err != nil {
		b.err = notCanonical(err)
		return
	}
	b.begin(fieldSelected, name, 0)
	b.length(len(sel.Only))
	for _, pointer := range slices.Sorted(slices.Values(sel.Only)) {
		value, found := canonical.Find(document, pointer)
		if !found {
			b.err = missingError(pointer)
			return
		}
		b.string(pointer)
		b.length(len(value))
		b.buf = append(b.buf, value...)
	}
}

// Sum returns the fingerprint of the fields, or the first error of adding one
// of them. Without any field it is a [*protocol.ConfigError].
func (b *Builder) Sum() (protocol.Fingerprint, error) {
	if b.err != nil {
		return "", b.err
	}
	if b.fields == 0 {
		return "", &protocol.ConfigError{What: "fingerprint",
			Problem: "it has no fields, so all inputs would look the same: add what tells them apart"}
	}
	return b.digest(), nil
}

func (b *Builder) digest() protocol.Fingerprint {
	var sum [sha256.Size]byte
	if b.hash == nil {
		sum = sha256.Sum256(b.buf)
	} else {
		b.flush()
		copy(sum[:], b.hash.Sum(nil))
	}
	return protocol.FingerprintOf(protocol.FingerprintVersion, sum)
}

// begin starts a field; room is what is known of the size of its value.
func (b *Builder) begin(kind byte, name string, room int) {
	b.fields++
	b.buf = slices.Grow(b.buf, 1+8+len(name)+8+room)
	b.buf = append(b.buf, kind)
	b.string(name)
}

func (b *Builder) string(s string) {
	b.length(len(s))
	b.buf = append(b.buf, s...)
}

func (b *Builder) length(n int) {
	b.buf = binary.BigEndian.AppendUint64(b.buf, uint64(n))
}

func (b *Builder) flush() {
	if b.hash == nil {
		b.hash = sha256.New()
	}
	b.hash.Write(b.buf)
	b.buf = b.buf[:0]
}
