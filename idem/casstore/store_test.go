package casstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var now = time.Date(2030, 5, 6, 7, 8, 9, 123e6, time.UTC)

func claim(owner string) protocol.Claim {
	return protocol.Claim{Record: protocol.Record{ID: "t#op#k", State: protocol.InProgress, Owner: owner, Write: owner,
		Attempt: 1, Fingerprint: "1:a", LeaseUntil: now.Add(time.Minute), Retention: time.Hour, CreatedAt: now,
		UpdatedAt: now}}
}

func step(owner, write, name string, size int) protocol.StepWrite {
	return protocol.StepWrite{ID: "t#op#k", Owner: owner, Write: write, Name: name, Result: fill(name, size)}
}

func complete(owner, write string, size int) protocol.Finish {
	return protocol.Finish{ID: "t#op#k", Owner: owner, Write: write, Created: now,
		Ending: protocol.Ending{State: protocol.Completed, Result: fill(write, size), ExpiresAt: now.Add(time.Hour)}}
}

func fill(with string, size int) []byte { return []byte(strings.Repeat(with, size))[:size] }

// A first execution is two round trips, a step is one more, a replay is one.
func TestRoundTrips(t *testing.T) {
	s, d := newStore(t)
	engine, err := idem.New(s, nil)
	require.NoError(t, err)
	call := func(steps int) []string {
		d.calls = nil
		key := idem.Operation{Name: "op"}.Key("t", fmt.Sprint(steps))
		_, err := idem.Do(t.Context(), engine, key, 1, func(ctx context.Context, _ int) (int, error) {
			for n := range steps {
				if _, err := idem.Step(ctx, fmt.Sprint(n), func(context.Context) (int, error) { return n, nil }, nil); err != nil {
					return 0, err
				}
			}
			return 7, nil
		})
		require.NoError(t, err)
		return d.calls
	}
	require.Equal(t, []string{"Write", "Write"}, call(0))
	require.Equal(t, []string{"Write"}, call(0))
	require.Equal(t, []string{"Write", "Write", "Write", "Write"}, call(2))
	require.Equal(t, []string{"Write"}, call(2))
}

// What follows from the row that this process has written last is not answered: the row may be another one by now.
func TestNothingIsAnsweredFromAGuess(t *testing.T) {
	d := newTable()
	a, b := casstore.New(d, nil), casstore.New(d, nil)
	require.NoError(t, a.Acquire(t.Context(), now, claim("a")))
	begin := step("a", "a.1", "pay", 0)
	begin.Begin = true
	require.NoError(t, a.RecordStep(t.Context(), now, begin))
	require.NoError(t, a.RecordStep(t.Context(), now, begin), "it has landed")
	over := claim("b")
	over.Seen = "a.1"
	require.NoError(t, b.Acquire(t.Context(), now, over))
	var met *protocol.ConflictError
	require.ErrorAs(t, a.RecordStep(t.Context(), now, begin), &met, "it is no leave to run any more")
	require.Equal(t, "b", met.Existing.Owner)
	require.ErrorAs(t, a.Finish(t.Context(), now, complete("a", "a.2", 1)), &met)
	require.NoError(t, b.Finish(t.Context(), now, complete("b", "b.1", 1)))
}

// A row that was removed and made again has another version: a change that was on its way does not find it.
func TestARowThatIsMadeAgainIsAnotherOne(t *testing.T) {
	s, d := newStore(t)
	var late func()
	for n := range 2 {
		require.NoError(t, s.Acquire(t.Context(), now, claim("a")))
		if n == 1 {
			break
		}
		d.fault = func(_ context.Context, method string, call func()) error {
			if method == "Write" {
				late = call
			}
			return &protocol.StoreError{Ambiguous: true, Down: true, Err: errLost}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		err := s.Finish(ctx, now, complete("a", "a.1", 1))
		cancel()
		failed := new(protocol.StoreError)
		require.ErrorAs(t, err, &failed)
		require.True(t, failed.Ambiguous && failed.Down)
		d.fault = nil
		d.Delete("t#op#k")
	}
	late()
	rec, err := s.Get(t.Context(), "t#op#k")
	require.NoError(t, err)
	require.Equal(t, protocol.InProgress, rec.State)
}

// What is written is the store's own, also what it remembers for the next write.
func TestAResultIsNotTheCallers(t *testing.T) {
	s, _ := newStore(t)
	require.NoError(t, s.Acquire(t.Context(), now, claim("a")))
	pay := step("a", "a.1", "pay", 3)
	require.NoError(t, s.RecordStep(t.Context(), now, pay))
	clear(pay.Result)
	require.NoError(t, s.RecordStep(t.Context(), now, step("a", "a.2", "ship", 3)))
	rec, err := s.Get(t.Context(), "t#op#k")
	require.NoError(t, err)
	got, err := s.StepResult(t.Context(), rec, "pay")
	require.NoError(t, err)
	require.Equal(t, "pay", string(got))
}

// Results that do not fit into their row are removed with the last record that names them.
func TestPartsStayWithTheirRecord(t *testing.T) {
	s, d := newStore(t)
	require.NoError(t, s.Acquire(t.Context(), now, claim("a")))
	require.NoError(t, s.RecordStep(t.Context(), now, step("a", "a.1", "small", 1<<10)))
	require.Empty(t, d.Table.Row("t#op#k").Put)
	large := step("a", "a.2", "large", 1<<10+1)
	require.NoError(t, s.RecordStep(t.Context(), now, large))
	again := step("a", "a.3", "again", 0)
	again.Result = large.Result
	require.NoError(t, s.RecordStep(t.Context(), now, again))
	require.NoError(t, s.RecordStep(t.Context(), now, step("a", "a.3.1", "small too", 1)))
	require.Len(t, d.Table.Row("t#op#k").Put, 1, "it is the same result")
	rec, err := s.Get(t.Context(), "t#op#k")
	require.NoError(t, err)
	got, err := s.StepResult(t.Context(), rec, "again")
	require.NoError(t, err)
	require.Equal(t, large.Result, got)
	require.NoError(t, s.Finish(t.Context(), now, complete("a", "a.4", 8<<10+1)))
	require.Len(t, d.Table.Row("t#op#k").Put, 1, "that of the outcome alone")
	rec, err = s.Get(t.Context(), "t#op#k")
	require.NoError(t, err)
	got, err = s.Result(t.Context(), rec)
	require.NoError(t, err)
	require.Equal(t, fill("a.4", 8<<10+1), got)
	next := claim("b")
	next.Seen, next.Replace = "a.4", true
	require.NoError(t, s.Acquire(t.Context(), now, next))
	require.Empty(t, d.Table.Row("t#op#k").Put)
	_, err = s.Result(t.Context(), rec)
	require.ErrorIs(t, err, idem.ErrRecordUnreadable)
}

// Once there are many results of steps in a row, more of them are parts.
func TestARowOfStepsStaysSmall(t *testing.T) {
	s, d := newStore(t)
	require.NoError(t, s.Acquire(t.Context(), now, claim("a")))
	for n := range 200 {
		require.NoError(t, s.RecordStep(t.Context(), now, step("a", fmt.Sprint("a.", n), fmt.Sprint("step-", n), 1<<10)))
	}
	require.Less(t, len(d.Table.Row("t#op#k").Row.Data), 200<<10)
	require.Greater(t, len(d.Table.Row("t#op#k").Put), 100)
}

// An answer that says nothing of an outage is not asked for again. An outage is, while there is time.
func TestTries(t *testing.T) {
	s, d := newStore(t)
	for name, c := range map[string]struct {
		err       *protocol.StoreError
		bounded   bool
		tries     int
		ambiguous bool
	}{
		"denied":        {&protocol.StoreError{Err: errLost}, false, 1, false},
		"down":          {&protocol.StoreError{Err: errLost, Down: true}, true, 2, false},
		"reply lost":    {&protocol.StoreError{Err: errLost, Ambiguous: true}, true, 2, true},
		"without bound": {&protocol.StoreError{Err: errLost, Ambiguous: true}, false, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			d.calls = nil
			d.fault = func(context.Context, string, func()) error { return c.err }
			ctx := t.Context()
			if c.bounded {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
			}
			err := s.Acquire(ctx, now, claim("a"))
			failed := new(protocol.StoreError)
			require.ErrorAs(t, err, &failed)
			require.Equal(t, "Acquire", failed.Op)
			require.Equal(t, c.ambiguous, failed.Ambiguous)
			require.ErrorIs(t, err, errLost)
			require.GreaterOrEqual(t, len(d.calls), c.tries)
			if !c.bounded {
				require.Len(t, d.calls, c.tries)
			}
			if c.ambiguous {
				d.calls = nil
				d.fault = func(context.Context, string, func()) error {
					if len(d.calls) > 1 {
						return &protocol.StoreError{Err: errLost}
					}
					return c.err
				}
				require.ErrorAs(t, s.Acquire(t.Context(), now, claim("a")), &failed)
				require.True(t, failed.Ambiguous, "the first try may have landed")
			}
			_, err = s.Get(ctx, "t#op#k")
			require.ErrorAs(t, err, &failed)
			require.False(t, failed.Ambiguous, "a read changes nothing")
		})
	}
}

// What a record is in its row, with a value in every field.
func TestTheFormOfARecord(t *testing.T) {
	d := newTable()
	s := casstore.New(d, nil)
	want := protocol.Record{}
	filled(reflect.ValueOf(&want).Elem())
	want.ID, want.State = "t#op#k", protocol.InProgress
	want.Body = protocol.Body{}
	for name, st := range want.Steps {
		st.Body = protocol.Body{Data: []byte("1"), Size: 1, Stored: 1}
		want.Steps[name] = st
	}
	want.Seen, want.Retention = "", 7*time.Second
	require.NoError(t, s.Acquire(t.Context(), now, protocol.Claim{Record: want}))
	got, err := s.Get(t.Context(), "t#op#k")
	require.NoError(t, err)
	require.Equal(t, &want, got)

	var form any
	require.NoError(t, json.Unmarshal(d.Table.Row("t#op#k").Row.Data, &form))
	text, err := json.MarshalIndent(form, "", "  ")
	require.NoError(t, err)
	const path = "testdata/record.json"
	if os.Getenv("IDEM_UPDATE") == "1" {
		require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o644))
	}
	golden, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(golden), string(text)+"\n", "run the test with IDEM_UPDATE=1 and look at the difference")
}

func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case reflect.Slice:
		v.SetBytes([]byte("bytes"))
	case reflect.Map:
		elem := reflect.New(v.Type().Elem()).Elem()
		filled(elem)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("name"), elem)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(now.Truncate(time.Second)))
			return
		}
		for i := range v.NumField() {
			filled(v.Field(i))
		}
	default:
		panic(v.Kind())
	}
}

// A count is made where it is below the bound, however many ask for it.
func TestACountIsBounded(t *testing.T) {
	s, d := newStore(t)
	for n := range 5 {
		counted, err := s.CountKey(t.Context(), "t#op", 3, now)
		require.NoError(t, err)
		require.Equal(t, n < 3, counted)
	}
	page, err := s.Scan(t.Context(), protocol.ScanQuery{Segments: 1})
	require.NoError(t, err)
	require.Empty(t, page.Records)
	require.Empty(t, page.Unreadable, "a count is no record")
	removed, err := s.RemoveExpired(t.Context(), protocol.ExpiredQuery{Segments: 1, Before: now.Add(time.Hour), Limit: 10})
	require.NoError(t, err)
	require.Equal(t, protocol.ExpiredPage{Looked: 1, Removed: 1, Done: true}, removed)
	require.Empty(t, d.Table.Row("!count t#op"))
}

// A sweep removes all that has expired, however much it is.
func TestASweepRemovesAllThatHasExpired(t *testing.T) {
	s, d := newStore(t)
	const rows = 26000
	for n := range rows {
		d.Set(casstore.Change{Row: casstore.Row{ID: fmt.Sprint("t#op#", n), Version: 1, Data: []byte("{}")},
			Expires: time.Now().Add(-48 * time.Hour)})
	}
	r, err := reconcile.New(s, nil)
	require.NoError(t, err)
	sweeper, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{Expired: s})
	require.NoError(t, err)
	report, err := sweeper.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, rows, report.Expired)
}

// A value that is kept may have any bytes. Operators see them as text.
func TestAKeptValueMayHaveAnyBytes(t *testing.T) {
	s, _ := newStore(t)
	e, err := idem.New(s, nil)
	require.NoError(t, err)
	key := idem.Operation{Name: "op", Values: idem.KeepValues}.Key("t", "caf\xe9")
	for range 2 {
		_, err = idem.Do(t.Context(), e, key, 1, func(context.Context, int) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
	rec, err := s.Get(t.Context(), key.ID())
	require.NoError(t, err)
	require.Equal(t, "caf\ufffd", rec.Value)
}

// overtaken is a driver that loses the reply of its first write, and makes another one before the next call.
type overtaken struct {
	casstore.Driver
	other func()
}

func (m *overtaken) Write(ctx context.Context, c casstore.Change) (casstore.Row, bool, error) {
	row, written, err := m.Driver.Write(ctx, c)
	if m.other != nil {
		m.other()
		m.other = nil
		return casstore.Row{}, false, &protocol.StoreError{Ambiguous: true, Err: errLost}
	}
	return row, written, err
}

// A change of what is paused may or may not have been made before another one. It is reported as that, and not made
// again over the other one.
func TestAPauseThatMayHaveBeenReplaced(t *testing.T) {
	s, d := newStore(t)
	bob, err := reconcile.New(s, nil)
	require.NoError(t, err)
	pause := func(why string) {
		err := bob.Pause(t.Context(), "export", "", time.Time{}, reconcile.Change{Actor: "bob", Reason: why})
		require.NoError(t, err)
	}
	pause("case 1")
	m := &overtaken{Driver: d, other: func() { pause("case 2") }}
	alice, err := reconcile.New(casstore.New(m, nil), nil)
	require.NoError(t, err)
	err = alice.Resume(t.Context(), "export", "", reconcile.Change{Actor: "alice", Reason: "case 1 is over"})
	failed := new(protocol.StoreError)
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Ambiguous)
	left, err := bob.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "case 2", left[0].Why)
}
