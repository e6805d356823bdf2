package dynamostore

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// full is a record with everything that a record may have.
func full() *protocol.Record {
	r := claimedRecord("t#op#key", "o1")
	r.State, r.Uncertain, r.Omitted, r.Sealed = protocol.Completed, true, true, true
	r.Ref, r.Ticket, r.Probes, r.ResponseVersion = "ch_1", "ticket", 3, 2
	r.Failure = &protocol.Failure{Message: "broke", Type: "Error", Code: "E1"}
	r.Body = protocol.Body{Data: []byte("{}"), Size: 2, Stored: 2}
	r.Steps = map[string]protocol.RecordedStep{
		"charge": {Write: "w1", Body: protocol.Body{Data: []byte("1"), Size: 1, Stored: 1}},
		"ship":   {Write: "w2", Begun: true},
	}
	return r
}

func TestRecordsSurviveTheItem(t *testing.T) {
	parts := full()
	parts.Body = protocol.Body{Parts: 2, Size: 700 << 10, Stored: 300 << 10, Encoding: encodingZlib, Digest: make([]byte, 32)}
	packed := full()
	packed.Body = protocol.Body{Data: []byte("zz"), Size: 5000, Stored: 2, Encoding: encodingZlib}
	pending := &protocol.Record{ID: "k", State: protocol.Pending, Fingerprint: "1:abc", Write: "w", CreatedAt: base, UpdatedAt: base}
	failed := claimedRecord("k", "o")
	failed.State, failed.Failure, failed.ExpiresAt = protocol.Failed, &protocol.Failure{Message: "no"}, time.Time{}
	for name, rec := range map[string]*protocol.Record{
		"in progress": claimedRecord("k", "o"), "full": full(), "in parts": parts, "compressed": packed,
		"pending": pending, "failed": failed,
	} {
		t.Run(name, func(t *testing.T) {
			it := encode(rec)
			got, err := decode(it)
			require.NoError(t, err)
			require.Equal(t, rec, got)
			it["something_new"] = str("that a later writer added")
			got, err = decode(it)
			require.NoError(t, err)
			require.Equal(t, rec, got)
		})
	}
}

// Half a second of expiry or retention is rounded up: nothing expires early.
func TestTimesAreRoundedUp(t *testing.T) {
	r := claimedRecord("k", "o")
	r.ExpiresAt, r.Retention = base.Add(time.Millisecond), 1500*time.Millisecond
	got, err := decode(encode(r))
	require.NoError(t, err)
	require.Equal(t, base.Add(time.Second), got.ExpiresAt)
	require.Equal(t, 2*time.Second, got.Retention)
}

func TestDamagedRecordsFailClosed(t *testing.T) {
	set := func(name string, v types.AttributeValue) func(item) { return func(it item) { it[name] = v } }
	without := func(name string) func(item) { return func(it item) { delete(it, name) } }
	m := func(it item) types.AttributeValue { return &types.AttributeValueMemberM{Value: it} }
	bin := func(b ...byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
	yes := &types.AttributeValueMemberBOOL{Value: true}
	parts := func(n, length string, digest int) func(item) {
		return func(it item) {
			delete(it, schema.Body)
			it[schema.Size] = num(length)
			it[schema.Parts] = m(item{"n": num(n), "len": num(length), "sha256": bin(make([]byte, digest)...)})
		}
	}
	cases := map[string]struct {
		damage func(item)
		says   string
	}{
		"newer version":      {set(schema.Version, num("2")), "version 2"},
		"before the release": {set(schema.Version, num("1")), "before the first release"},
		"unknown state":      {set(schema.State, str("done")), `"in_state"`},
		"text for repeat":    {set(schema.Repeatable, str("repeatable")), `"repeatable" is not true or false`},
		"negative attempt":   {set(schema.Attempt, num("-1")), `"attempt"`},
		"huge attempt":       {set(schema.Attempt, num("99999999999")), `"attempt"`},
		"fraction":           {set(schema.LeaseUntil, num("1.5")), `"lease_until"`},
		"huge time":          {set(schema.UpdatedAt, num("999999999999999999")), `"updated_at"`},
		"microseconds":       {set(schema.ExpiresAt, num("1735689600000000")), `"expires_at"`},
		"huge retention":     {set(schema.Retention, num("9999999999999")), `"retention"`},
		"text for a number":  {set(schema.Attempt, str("1")), `"attempt" is not a number`},
		"number for a text":  {set(schema.Owner, num("1")), `"owner_id" is not a string`},
		"text for a flag":    {set(schema.Uncertain, str("true")), `"uncertain"`},
		"text for binary":    {set(schema.Body, str("{}")), `"body" is not binary`},
		"text for a map":     {set(schema.Failure, str("broke")), `"failure"`},
		"empty owner":        {set(schema.Owner, str("")), `"owner_id" is empty`},
		"value of bytes":     {set(schema.Value, bin(1)), `"key_value"`},
		"ref of bytes":       {set(schema.Ref, bin(1)), `"provider_ref"`},
		"no message":         {set(schema.Failure, m(item{})), "message"},
		"no result":          {without(schema.Body), "exactly one"},
		"result and parts":   {set(schema.Parts, m(item{})), "exactly one"},
		"unknown codec":      {set(schema.Encoding, str("br")), `"enc"`},
		"Zstandard":          {set(schema.Encoding, str("zstd")), `"enc"`},
		"sealed Zstandard":   {set(schema.Encoding, str("zstd+sealed")), `"enc"`},
		"codec, no size":     {set(schema.Encoding, str(encodingZlib)), `"body_size" is missing`},
		"size, no codec":     {set(schema.Size, num("2")), `"body_size"`},
		"result in progress": {set(schema.State, str("in_progress")), "although the record is in_progress"},
		"failed, no error": {func(it item) {
			it[schema.State] = str("failed")
			delete(it, schema.Body)
			delete(it, schema.Failure)
		}, `"failure" is missing`},
		"parts of nothing":     {parts("0", "0", 32), `"parts"`},
		"too few parts":        {parts("1", "300000", 32), `"parts"`},
		"too many parts":       {parts("65", "9000000", 32), `"n"`},
		"too long":             {parts("64", "99999999999", 32), `"len"`},
		"half a digest":        {parts("1", "5000", 16), `"parts"`},
		"empty steps":          {set(schema.Steps, m(item{})), `"steps" is empty`},
		"step of text":         {set(schema.Steps, m(item{"s": str("x")})), `"s" is not a map`},
		"step without write":   {set(schema.Steps, m(item{"s": m(item{"body": bin(1)})})), `"write_id"`},
		"step without anthing": {set(schema.Steps, m(item{"s": m(item{"write_id": str("w")})})), `step "s"`},
		"step with both":       {set(schema.Steps, m(item{"s": m(item{"write_id": str("w"), "begun": yes, "body": bin(1)})})), `step "s"`},
	}
	for _, name := range []string{
		schema.State, schema.Fingerprint, schema.Owner, schema.Write, schema.LeaseUntil, schema.CreatedAt,
	} {
		cases["no "+name] = struct {
			damage func(item)
			says   string
		}{without(name), `"` + name + `" is missing`}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			it := maps.Clone(encode(full()))
			tc.damage(it)
			rec, err := decode(it)
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, `record "t#op#key"`)
			require.Nil(t, rec)
		})
	}
}

func FuzzDecodeNumbers(f *testing.F) {
	for _, s := range []string{"", "0", "-1", "1e3", "9223372036854775808", "253402300800000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, name := range []string{
			schema.Version, schema.Attempt, schema.LeaseUntil, schema.Retention, schema.CreatedAt, schema.ExpiresAt, schema.Probes,
		} {
			it := encode(full())
			it[name] = num(s)
			rec, err := decode(it)
			require.Equal(t, rec == nil, err != nil)
		}
	})
}

// Records as they were before the first release, in testdata as they lay in the table,
// are refused by every read, and never taken for absent or for something else.
func TestRecordsOfBeforeTheFirstReleaseAreRefused(t *testing.T) {
	raw, err := os.ReadFile("testdata/before-first-release.json")
	require.NoError(t, err)
	var records map[string]map[string]any
	require.NoError(t, json.Unmarshal(raw, &records))
	require.Len(t, records, 3)
	for name, former := range records {
		t.Run(name, func(t *testing.T) {
			it := fromJSON(t, former)
			_, err := decode(it)
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
			require.ErrorContains(t, err, `record "t#op#key": it has attribute "v" with 1, as before the first release, `+
				`whose attributes had other names: delete it, or start with a new table`)
			s, err := New(fake(func(_ context.Context, in any) (item, error) {
				return it, &types.ConditionalCheckFailedException{Item: it}
			}), "table", nil)
			require.NoError(t, err)
			for what, err := range map[string]error{
				"claim":    s.Acquire(t.Context(), base, claim("t#op#key", "o2")),
				"complete": s.Finish(t.Context(), base, completion("t#op#key", "o1", nil)),
			} {
				require.ErrorIs(t, err, protocol.ErrRecordUnreadable, what)
				require.ErrorContains(t, err, "before the first release", what)
			}
		})
	}
}

// fromJSON makes an item of DynamoDB's JSON.
func fromJSON(t *testing.T, attributes map[string]any) item {
	it := item{}
	for name, typed := range attributes {
		for kind, value := range typed.(map[string]any) {
			switch kind {
			case "S":
				it[name] = &types.AttributeValueMemberS{Value: value.(string)}
			case "N":
				it[name] = &types.AttributeValueMemberN{Value: value.(string)}
			case "B":
				it[name] = &types.AttributeValueMemberB{Value: []byte(value.(string))}
			case "BOOL":
				it[name] = &types.AttributeValueMemberBOOL{Value: value.(bool)}
			case "M":
				it[name] = &types.AttributeValueMemberM{Value: fromJSON(t, value.(map[string]any))}
			default:
				require.FailNow(t, "an attribute of type "+kind)
			}
		}
	}
	return it
}
