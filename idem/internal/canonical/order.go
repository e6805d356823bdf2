package canonical

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/big"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// canonicalizer puts a valid JSON text without white space into its canonical form:
// value reads it once and notes which objects are out of order, ordered writes them.
// Both take time by the text's size, and its logarithm for sorting, whatever the
// depth.
type canonicalizer struct {
	text []byte
	// out is the text up to done with numbers in their canonical form.
	out  []byte
	done int
	// objects out of order, and those around them, by where they begin.
	objects []object
	// members of the objects out of order, in canonical order.
	members []objectMember
	// open holds the members of the objects that are being read.
	open []objectMember
	// names that had to be unescaped.
	names []byte
	// result is the text in order.
	result []byte
	// for numbers
	digits              []byte
	powers              map[int]*big.Int
	num, den, quo, rest big.Int
	// wrong makes the error, from the text as it was sent.
	wrong func(raw []byte) error
}

// canonicalizers keeps the memory of small ones for the next text.
var canonicalizers = sync.Pool{New: func() any { return new(canonicalizer) }}

// most is the number of objects and members up to which memory is kept.
const most = 16 << 10

func (c *canonicalizer) release() {
	if cap(c.objects) > most || cap(c.members) > most || cap(c.open) > most || cap(c.names)+cap(c.out)+cap(c.result) > 64*most {
		return
	}
	c.text, c.done, c.powers, c.wrong = nil, 0, nil, nil
	c.objects, c.members, c.open = c.objects[:0], c.members[:0], c.open[:0]
	c.names, c.out, c.result = c.names[:0], c.out[:0], c.result[:0]
	canonicalizers.Put(c)
}

// object is one in the text with canonical numbers.
type object struct {
	start, end int // of its members
	next       int // index of the first object that begins behind it
	from, to   int // its members; none if they are in order
}

// objectMember has no pointers, which spares the collector a look at each.
type objectMember struct {
	order         uint64 // the name's first bytes, as they sort
	name, nameEnd int    // in the text, or as its complement in names
	start, end    int
	first         int // index of the first object in it
}

// at is where a place of the text is in the one with canonical numbers.
func (c *canonicalizer) at(i int) int {
	return len(c.out) + i - c.done
}

// value reads the value that begins at i and returns the index after it.
func (c *canonicalizer) value(i int) int {
	switch c.text[i] {
	case '"':
		return skipString(c.text, i)
	case '{':
		return c.object(i)
	case '[':
		for i++; c.text[i] != ']' && c.wrong == nil; {
			if c.text[i] == ',' {
				i++
			}
			i = c.value(i)
		}
		return i + 1
	case 't', 'n':
		return i + len("true")
	case 'f':
		return i + len("false")
	}
	return c.number(i)
}

func (c *canonicalizer) object(i int) int {
	self, base, sorted := len(c.objects), len(c.open), true
	c.objects = append(c.objects, object{start: c.at(i + 1)})
	for i++; c.text[i] != '}'; {
		if c.text[i] == ',' {
			i++
		}
		m := objectMember{start: c.at(i), first: len(c.objects)}
		colon := skipString(c.text, i)
		m.name, m.nameEnd = i+1, colon-1
		if bytes.IndexByte(c.text[m.name:m.nameEnd], '\\') >= 0 {
			m.name = ^len(c.names)
			c.names, _ = jsontext.AppendUnquote(c.names, c.text[i:colon]) // the library wrote it
			m.nameEnd = len(c.names)
		}
		m.order = orderOf(c.nameOf(&m))
		i = c.value(colon + 1)
		if c.wrong != nil {
			return i
		}
		m.end = c.at(i)
		if n := len(c.open); n > base {
			sorted = sorted && c.compare(c.open[n-1], m) < 0
		}
		c.open = append(c.open, m)
	}
	members := c.open[base:]
	c.open = c.open[:base]
	if sorted && len(c.objects) == self+1 {
		c.objects = c.objects[:self] // nothing in it is out of order
		return i + 1
	}
	o := &c.objects[self]
	o.end, o.next = c.at(i), len(c.objects)
	if sorted {
		return i + 1
	}
	slices.SortFunc(members, c.compare)
	for j := range members[1:] {
		if a, b := members[j], members[j+1]; c.compare(a, b) == 0 {
			c.wrong = c.duplicateError(max(a.start, b.start))
			return i
		}
	}
	o.from = len(c.members)
	c.members = append(c.members, members...)
	o.to = len(c.members)
	return i + 1
}

// duplicateError refuses the member that begins at the place of the text with
// canonical numbers, which has as many strings before it as the text that was sent.
func (c *canonicalizer) duplicateError(start int) func(raw []byte) error {
	return func(raw []byte) error {
		before := append(c.out, c.text[c.done:]...)[:start]
		n := 0
		for i := bytes.IndexByte(before, '"'); i >= 0; n++ {
			i = nextString(before, skipString(before, i))
		}
		at := bytes.IndexByte(raw, '"')
		for ; n > 0; n-- {
			at = nextString(raw, skipString(raw, at))
		}
		return &Error{
			Reason: "the member name occurs twice in one object: send each name once",
			Offset: int64(at),
		}
	}
}

// nextString returns where the next string at or after i begins, -1 if there is
// none.
func nextString(text []byte, i int) int {
	at := bytes.IndexByte(text[i:], '"')
	if at < 0 {
		return -1
	}
	return i + at
}

// ordered returns the text with all objects in order.
func (c *canonicalizer) ordered() []byte {
	text := c.text
	if c.done > 0 {
		c.out = append(c.out, c.text[c.done:]...)
		text = c.out
	}
	if len(c.members) == 0 {
		return text
	}
	c.result = c.write(slices.Grow(c.result, len(text)), text, 0, len(text), 0)
	return c.result
}

// write appends a piece of the text in which objects begin with the one of the
// index.
func (c *canonicalizer) write(to, text []byte, start, end, index int) []byte {
	for index < len(c.objects) && c.objects[index].start <= end {
		o := c.objects[index]
		if o.from == o.to {
			index++
			continue
		}
		to = append(to, text[start:o.start]...)
		for i, m := range c.members[o.from:o.to] {
			if i > 0 {
				to = append(to, ',')
			}
			to = c.write(to, text, m.start, m.end, m.first)
		}
		start, index = o.end, o.next
	}
	return append(to, text[start:end]...)
}

// nameOf is a member's name, unescaped.
func (c *canonicalizer) nameOf(m *objectMember) []byte {
	if m.name < 0 {
		return c.names[^m.name:m.nameEnd]
	}
	return c.text[m.name:m.nameEnd]
}

// compare orders by the names' UTF-16 units (RFC 8785 3.2.3).
func (c *canonicalizer) compare(a, b objectMember) int {
	if a.order != b.order {
		return cmp.Compare(a.order, b.order)
	}
	x, y := c.nameOf(&a), c.nameOf(&b)
	for len(x) >= 8 && len(y) >= 8 && binary.BigEndian.Uint64(x) == binary.BigEndian.Uint64(y) {
		x, y = x[8:], y[8:]
	}
	for i := 0; i < len(x) && i < len(y); i++ {
		if x[i] != y[i] {
			return cmp.Compare(unitOrder(x[i]), unitOrder(y[i]))
		}
	}
	return cmp.Compare(len(x), len(y))
}

// orderOf packs the first eight bytes as they sort. The end of a name sorts like a
// zero byte, which the whole names then tell apart.
func orderOf(name []byte) (order uint64) {
	for i := range 8 {
		order <<= 8
		if i < len(name) {
			order |= uint64(unitOrder(name[i]))
		}
	}
	return order
}

// unitOrder makes bytes of UTF-8 sort as UTF-16 units do. The two differ where a
// character from U+E000 to U+FFFF (lead bytes 0xEE and 0xEF) is compared with one
// beyond (from 0xF0 on), which UTF-16 writes with surrogates, from U+D800 on.
func unitOrder(b byte) byte {
	switch {
	case b >= 0xf0:
		return b - 2
	case b >= 0xee:
		return b + 7
	}
	return b
}
