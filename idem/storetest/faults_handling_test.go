package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// handlingFaults are faults in reading, copying, storing and reporting.
var handlingFaults = []fault{
	{"conflict without the record", []string{"claim/finds a record in_progress"}, func(s *faulty) {
		s.conflict = func(*protocol.Record) error { return &protocol.ConflictError{} }
	}},
	{"conflict as a plain error", []string{"claim/finds a record in_progress"}, func(s *faulty) {
		s.conflict = func(*protocol.Record) error {
			return &protocol.StoreError{Op: "write", Err: errors.New("condition failed")}
		}
	}},
	{"hands out its own memory", []string{
		"copy/ConflictError.Existing is the caller's own", "copy/what Get returns is the caller's own",
	}, func(s *faulty) { s.hand = func(r *protocol.Record) *protocol.Record { return r } }},
	{"keeps the caller's memory", []string{
		"copy/a result is not the caller's memory", "copy/a failure is not the caller's memory",
	}, func(s *faulty) { s.keep = func(r *protocol.Record) *protocol.Record { return r } }},
	{"result cut at 400 KB", []string{"result/450 KB of noise", "result/5.5 MB of text"}, func(s *faulty) {
		s.join = func(_ bool, data []byte) ([]byte, error) { return data[:min(len(data), 400<<10)], nil }
	}},
	{"parts belong to the record, not the owner", []string{"result/a large result of a lost claim is never read"},
		func(s *faulty) { s.partKey = func(id, _ string) string { return id } }},
	{"damaged parts are handed out", []string{"unreadable/part cut short"}, func(s *faulty) {
		s.join = func(bad bool, data []byte) ([]byte, error) {
			if bad {
				data = data[:len(data)/2]
			}
			return data, nil
		}
	}},
	{"damaged record is taken for absent", []string{"unreadable/newer version of a record completed"},
		func(s *faulty) { s.unreadable = func() error { return nil } }},
	{"damaged record is taken for a conflict", []string{"unreadable/newer version of a record in_progress"},
		func(s *faulty) { s.unreadable = func() error { return &protocol.ConflictError{} } }},
	{"too large result is written first", []string{"result/a result over the limit is refused and nothing written"},
		func(s *faulty) { s.tooLate = true }},
	{"too large result of a step is written", []string{"result/a result over the limit is refused and nothing written"},
		func(s *faulty) { s.largeSteps = true }},
	{"Get is behind", []string{"plain/Get reads every write at once", "claim/creates the record as given"},
		func(s *faulty) {
			before := map[string]*protocol.Record{}
			s.get = func(id string, now *protocol.Record) *protocol.Record {
				old := before[id]
				before[id] = now
				return old
			}
		}},
	{"seconds for milliseconds", []string{"plain/times survive with their precision"}, func(s *faulty) {
		s.keep = func(r *protocol.Record) *protocol.Record {
			r = r.Clone()
			r.LeaseUntil = r.LeaseUntil.Truncate(time.Second)
			return r
		}
	}},
	{"an ended context is ignored", []string{"plain/a context that has ended"}, func(s *faulty) {
		s.alive = func(context.Context, string) error { return nil }
	}},
	{"an ended context may have written", []string{"plain/a context that has ended"}, func(s *faulty) {
		s.alive = func(ctx context.Context, op string) error {
			if err := ctx.Err(); err != nil {
				return &protocol.StoreError{Op: op, Ambiguous: true, Err: err}
			}
			return nil
		}
	}},
	{"lists what is due without its time", []string{"questions/due"}, func(s *faulty) {
		s.due = func(q protocol.DueQuery, due []*protocol.Record) protocol.DuePage {
			p := duePage(q, due)
			p.Due = nil
			return p
		}
	}},
	{"lists what is due under another's time", []string{"questions/due"}, func(s *faulty) {
		s.due = func(q protocol.DueQuery, due []*protocol.Record) protocol.DuePage {
			p := duePage(q, due)
			slices.Reverse(p.Due)
			return p
		}
	}},
	{"a page of what is due begins again where the last record of the one before has moved",
		[]string{"questions/due, while what was listed moves away, ends or is parked"}, func(s *faulty) {
			s.due = func(q protocol.DueQuery, due []*protocol.Record) protocol.DuePage {
				if !slices.ContainsFunc(due, func(r *protocol.Record) bool { return dueAt(r) == q.Page }) {
					q.Page = ""
				}
				return duePage(q, due)
			}
		}},
	{"foreign writes commit alone", []string{"plain/writes that commit with an end, or not at all"}, func(s *faulty) {
		s.withEarly = true
	}},
}
