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
// names (compared unescaped), invalid UTF-8, half surrogate pairs, numbers beyond the doubles, a
// byte order mark, more or less than one value. It refuses numbers that two readers may round
// differently: those with a fraction or an exponent and more than 17 significant digits,
// unless they are a double exactly. 1.000000000000000001 and 1.000000000000000002 would be
// one input otherwise. The [*Error] says where and what to send instead.
//
// The library github.com/go-json-experiment/json does the work. Two limits keep a hostile
// text from costing more than twelve times as much as a plain one of its size, which
// BenchmarkCanonicalWorst holds: nesting is at most [MaxDepth] deep, as the library moves
// a text once for each level, and at most 100 numbers are closer to zero than 1e-307, as
// the standard library takes a thousand times as long to read one. Memory is some 50 times the
// text at most.
//
// The digests in users' tables are made of this form. It must not change for
// any text: a change needs a new version of the fingerprint.
package canonical
