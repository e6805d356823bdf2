// Package reference compares package canonical with another implementation of RFC 8785. It is a
// module of its own, which is not tagged: the library's users need not know that implementation.
package reference
