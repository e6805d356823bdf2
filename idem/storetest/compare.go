package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// same requires that the store's record says what the reference's does, its
// result included. How a result is stored is the store's own.
func (c *cell) same(where string, want, got *protocol.Record) {
	c.Helper()
	if want == nil || got == nil {
		if want != nil || got != nil {
			c.fatalf("%s: want %s, got %s", where, describe(want), describe(got))
		}
		return
	}
	if d := differences(want, got); len(d) > 0 {
		c.fatalf("%s differs from the reference:\n\t%s", where, strings.Join(d, "\n\t"))
	}
	if want.State != protocol.Completed {
		return
	}
	body, err := c.store.Result(c.ctx, got)
	if err != nil {
		c.fatalf("%s: Result: %v", where, err)
	}
	if !bytes.Equal(want.Body.Data, body) {
		c.fatalf("%s: the result differs: want %d bytes %.40q, got %d bytes %.40q",
			where, len(want.Body.Data), want.Body.Data, len(body), body)
	}
}

// own are the fields of a record and of a step that are not compared here.
var own = map[string]bool{"Steps": true, "Sealed": true}

func differences(want, got *protocol.Record) []string {
	d := fields("", *want, *got)
	if want.State != protocol.Completed && got.Body.Parts+len(got.Body.Data) > 0 {
		d = append(d, fmt.Sprintf("Body: want none, got %d bytes and %d parts", len(got.Body.Data), got.Body.Parts))
	}
	if w, g := stepNames(want), stepNames(got); w != g {
		return append(d, fmt.Sprintf("names of Steps: want %s, got %s", w, g))
	}
	for name, s := range want.Steps {
		d = append(d, fields(" of step "+name, s, got.Steps[name])...)
	}
	return d
}

// fields compares the fields of two structs: times as instants, results by their size.
func fields(of string, want, got any) (d []string) {
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		name := w.Type().Field(i).Name
		if own[name] {
			continue
		}
		if w, g := plain(w.Field(i).Interface()), plain(g.Field(i).Interface()); w != g {
			d = append(d, fmt.Sprintf("%s%s: want %v, got %v", name, of, w, g))
		}
	}
	return d
}

// plain is what of a field is compared.
func plain(field any) any {
	switch v := field.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case protocol.Body:
		return v.Size
	case *protocol.Failure:
		if v == nil {
			return "none"
		}
		return fmt.Sprintf("%q", *v)
	}
	return field
}

func stepNames(r *protocol.Record) string {
	return fmt.Sprintf("%q", slices.Sorted(maps.Keys(r.Steps)))
}
