package casstore

import (
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

func BenchmarkCodec(b *testing.B) {
	now := time.Date(2030, 5, 6, 7, 8, 9, 123e6, time.UTC)
	rec := &protocol.Record{ID: "acme#charge#uZ3vT0bq5q0m1o2p3q4r5s6t7u8v9w0x1y2z3A4B5C6", State: protocol.Completed,
		Owner: "4f9q2m1o2p3q4r5s6t7u8v", Write: "4f9q2m1o2p3.1", Attempt: 1, Fingerprint: "1:4f9q2m1o2p3q4r5s6t7u8v",
		LeaseUntil: now, ExpiresAt: now, Retention: time.Hour, CreatedAt: now, UpdatedAt: now,
		Body: protocol.Body{Data: make([]byte, 1<<10), Size: 1 << 10, Stored: 1 << 10}}
	c := new(Change)
	if err := encode(rec, c); err != nil {
		b.Fatal(err)
	}
	c.Row.ID, c.Row.Version = rec.ID, 1
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = encode(rec, c)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decode(c.Row); err != nil {
				b.Fatal(err)
			}
		}
	})
}
