package protocol_test

import (
	_ "embed"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

func TestExpired(t *testing.T) {
	type withSteps = [2]bool // without steps, and with steps
	never, always := withSteps{false, false}, withSteps{true, true}
	for state, want := range map[protocol.State]struct{ expires, open withSteps }{
		protocol.Pending: {never, always}, protocol.InProgress: {never, never}, protocol.Completed: {always, never},
		protocol.Failed: {always, never}, protocol.Released: {withSteps{true, false}, withSteps{false, true}},
		protocol.Unknown: {never, always}, protocol.Absent: {never, never}, "of tomorrow": {never, never},
	} {
		for i, steps := range []map[string]protocol.RecordedStep{nil, {"ship": {}}} {
			r := &protocol.Record{State: state, Steps: steps, ExpiresAt: instant}
			require.Equal(t, want.open[i], r.Open(), "%+v", r)
			require.False(t, r.Expired(instant.Add(-1)), "%+v", r)
			require.Equal(t, want.expires[i], r.Expired(instant), "%+v", r)
			require.Equal(t, want.expires[i], r.Expired(instant.Add(time.Hour)), "%+v", r)
			r.ExpiresAt = time.Time{}
			require.False(t, r.Expired(instant.Add(1000*time.Hour)), "without an expiry: %+v", r)
		}
	}
}

// The holder stops at the lease's end; an observer waits for the margin too, and has to be past it.
func TestLapsed(t *testing.T) {
	r := &protocol.Record{State: protocol.InProgress, LeaseUntil: instant}
	for _, margin := range []time.Duration{0, skew} {
		require.False(t, r.Lapsed(instant.Add(margin-1), margin))
		require.False(t, r.Lapsed(instant.Add(margin), margin))
		require.True(t, r.Lapsed(instant.Add(margin+1), margin))
	}
}

func TestUnexecuted(t *testing.T) {
	for want, recs := range map[bool][]*protocol.Record{
		true: {{State: protocol.Released}, {State: protocol.Released, Attempt: 3, Repeat: protocol.NotRepeatable}},
		false: {
			{State: protocol.Released, Uncertain: true},
			{State: protocol.Released, Steps: map[string]protocol.RecordedStep{protocol.AcceptedStep: {}}}, {},
			{State: protocol.InProgress}, {State: protocol.Completed}, {State: protocol.Failed}, {State: protocol.Pending},
			{State: protocol.Unknown},
		},
	} {
		for _, rec := range recs {
			require.Equal(t, want, rec.Unexecuted(), "%+v", rec)
		}
	}
}

// No record both expires and is an open question.
func TestOpenRecordsNeverExpire(t *testing.T) {
	for _, s := range situations() {
		if s.rec != nil && s.rec.Open() {
			s.rec.ExpiresAt = instant
			require.False(t, s.rec.Expired(instant.Add(time.Hour)), s.name)
		}
	}
}

// A clone is equal and shares no memory. The test fills every field, so that one
// that is added and not copied deeply fails it.
func TestClone(t *testing.T) {
	require.Nil(t, (*protocol.Record)(nil).Clone())
	require.Equal(t, &protocol.Record{}, (&protocol.Record{}).Clone())

	rec, want := &protocol.Record{}, &protocol.Record{}
	fill(t, reflect.ValueOf(rec).Elem())
	fill(t, reflect.ValueOf(want).Elem())
	require.Equal(t, want, rec)
	clone := rec.Clone()
	require.Equal(t, want, clone)
	scratch(reflect.ValueOf(rec).Elem())
	require.NotEqual(t, want, rec)
	require.Equal(t, want, clone)
}

func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("filled")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(t, elem)
		v.SetMapIndex(reflect.ValueOf("name"), elem)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(instant))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		require.Failf(t, "the test cannot fill", "%v", v.Type())
	}
}

// scratch changes all memory that a record refers to.
func scratch(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Elem().SetZero()
	case reflect.Slice:
		for i := range v.Len() {
			v.Index(i).SetZero()
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			elem := v.MapIndex(k)
			for i := range elem.NumField() {
				scratch(elem.Field(i)) // a slice in a copy still refers to the memory
			}
			v.SetMapIndex(k, reflect.Value{})
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			scratch(v.Field(i))
		}
	}
}

// What is written by those who look after open questions; the words are those of [writeTable], and X is no record.
// Columns: the owner's reference; a postponement that has read none before it, the one before it, and another write;
// forgetting what was read, and another write; keeping what was read for longer, and another write; a resolution over
// an earlier one to completed, failed, released, and of another write.
//
//go:embed testdata/questions.txt
var questionTable string

func TestQuestionTable(t *testing.T) {
	holds(t, questionTable, []protocol.Event{
		{Kind: protocol.EventReference, Owner: "own"},
		{Kind: protocol.EventPostpone, Seen: "seen"},
		{Kind: protocol.EventPostpone, Seen: "seen", Sweep: "sweep"},
		{Kind: protocol.EventPostpone, Owner: "own", Seen: "stale"},
		{Kind: protocol.EventForget, Seen: "seen"},
		{Kind: protocol.EventForget, Owner: "own", Seen: "stale"},
		{Kind: protocol.EventProlong, Seen: "seen", ExpiresAt: instant.Add(time.Hour)},
		{Kind: protocol.EventProlong, Owner: "own", Seen: "stale", ExpiresAt: instant.Add(time.Hour)},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Completed, Again: true, Margin: skew},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Failed, Again: true, Margin: skew},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Released, Again: true, Margin: skew},
		{Kind: protocol.EventResolve, Owner: "own", Seen: "stale", To: protocol.Completed, Again: true, Margin: skew},
	})
}

// Tools show the words of one vocabulary, also one that they do not know.
func TestEachWordAboutAStepHasItsText(t *testing.T) {
	texts := map[string]bool{}
	for _, w := range []protocol.StepVerdict{protocol.StepTookEffect, protocol.StepWithoutResult, protocol.StepFailed,
		protocol.StepNotExecuted, protocol.StepUndone, "postponed"} {
		require.Equal(t, w == "postponed", strings.Contains(w.Text(), "is said to be"), w)
		texts[w.Text()] = true
	}
	require.Len(t, texts, 6)
}

// The group is the tenant's, whatever the record.
func TestRecordsOfATenantHaveOneGroup(t *testing.T) {
	const acme = "822b33ad87c148a0a20a5ba7cd5ebcaa68d36a18e7aad165554903f52ca82757"
	require.Equal(t, acme, protocol.TenantGroup("acme#charge#abc"),
		"programs of two versions send to one queue: it never changes")
	require.Equal(t, acme, protocol.TenantGroup("acme#refund#abd"))
	require.Equal(t, acme, protocol.TenantGroup(protocol.ShadowID("acme#charge#abc")))
	require.Equal(t, "4e1f789a9b3730368aceb6ad361768f5974badfb18724a0a42fedad68c377a97",
		protocol.TenantGroup("s%C3%B6hne#charge#abc"))
	require.NotEqual(t, acme, protocol.TenantGroup("Acme#charge#abc"))
	require.Empty(t, protocol.TenantGroup("#charge#abc"), "no tenant")
	require.Empty(t, protocol.TenantGroup(""))
}

func TestAConfigErrorIsASentence(t *testing.T) {
	require.EqualError(t, &protocol.ConfigError{What: "region", Problem: "is missing: set AWS_REGION"},
		"idem: region is missing: set AWS_REGION")
	require.EqualError(t, &protocol.ConfigError{What: "idem.New", Problem: "the store is nil"},
		"idem: idem.New: the store is nil")
}

func TestAnIdentifierIsNoFlag(t *testing.T) {
	for range 1000 {
		require.Regexp(t, `^[A-Za-f][\w-]{21}$`, protocol.NewID())
	}
}
