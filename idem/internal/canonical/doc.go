// Package canonical gives JSON texts that mean the same the same bytes, and reads
// values out of them by JSON pointer.
//
// The canonical form is that of RFC 8785 with one exception, plain integers:
//
//   - White space goes. Members are ordered by their names' UTF-16 units. Strings are
//     written with as few and as short escapes as possible.
//   - A number with a fraction or an exponent is the double next to it, written as
//     ECMAScript writes that double: 4.50 and 45e-1 become 4.5, 1.0 and 1e0 become 1, and -0.0
//     becomes 0.
//   - A plain integer, without fraction and exponent, stands for itself at any size:
//     RFC 8785 would round those beyond 2^53, and two ids would become one.
//
// [Append] refuses what two readers could understand differently: duplicate member
// names, invalid UTF-8, half surrogate pairs, numbers beyond the doubles, a byte order
// mark, more or less than one value. It refuses nesting deeper than [MaxDepth] too. The
// [*Error] says where and what to send instead.
//
// A text is read a fixed number of times and its members are sorted once: the time goes
// by the text's size, whatever its depth, its names and its numbers. A hostile text costs
// at most five times as much as a plain one of its size, which BenchmarkCanonicalWorst
// holds. Memory is a small multiple of the text.
//
// The digests that lie in people's tables are made of this form. It must not change for
// any text: a change needs a new version of the fingerprint.
package canonical
