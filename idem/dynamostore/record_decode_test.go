package dynamostore

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
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
	parts.Body = protocol.Body{Parts: 2, Size: 700 << 10, Stored: 300 << 10, Encoding: encodingZlib,
		Digest: make([]byte, 32)}
	packed := full()
	packed.Body = protocol.Body{Data: []byte("zz"), Size: 5000, Stored: 2, Encoding: encodingZlib}
	pending := &protocol.Record{ID: "k", State: protocol.Pending, Fingerprint: "1:abc", Write: "w",
		CreatedAt: base, UpdatedAt: base}
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
		"step with both": {set(schema.Steps, m(item{"s": m(item{"write_id": str("w"), "begun": yes, "body": bin(1)})})),
			`step "s"`},
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
			schema.Version, schema.Attempt, schema.LeaseUntil, schema.Retention, schema.CreatedAt,
			schema.ExpiresAt, schema.Probes,
		} {
			it := encode(full())
			it[name] = num(s)
			rec, err := decode(it)
			require.Equal(t, rec == nil, err != nil)
		}
	})
}

// jsonResult is at least size bytes of what services return: names repeated, values that are partly random.
func jsonResult(size int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	customers := []string{"Ada Lovelace", "Grace Hopper", "Alan Turing", "Edsger Dijkstra", "Barbara Liskov"}
	states := []string{"authorized", "captured", "refunded", "declined"}
	type payment struct {
		ID       string  `json:"id"`
		Amount   int     `json:"amount"`
		Currency string  `json:"currency"`
		Customer string  `json:"customer_name"`
		State    string  `json:"state"`
		Created  string  `json:"created_at"`
		Risk     float64 `json:"risk_score"`
	}
	b := []byte{'['}
	for len(b) < size-1 {
		p, _ := json.Marshal(payment{
			ID: fmt.Sprintf("pay_%016x", r.Uint64()), Amount: r.IntN(1e6), Currency: "EUR",
			Customer: customers[r.IntN(len(customers))], State: states[r.IntN(len(states))],
			Created: fmt.Sprintf("2026-%02d-%02dT%02d:%02d:00Z", 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60)),
			Risk:    r.Float64(),
		})
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, p...)
	}
	return append(b, ']')
}

// No level makes the stored form smaller by more than a twentieth of the result.
func TestTheLevelOfCompression(t *testing.T) {
	var c codec
	for _, kb := range []int{2, 10, 100} {
		in := jsonResult(kb << 10)
		small := c.compress(in)
		var o bytes.Buffer
		w, err := zlib.NewWriterLevel(&o, zlib.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(in)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.Less(t, len(small), o.Len()+len(in)/20)
		require.Less(t, len(small), len(in)/2)
	}
}

// unzipped is what zlib makes of bytes, for tests that do not know how much that is.
func unzipped(b []byte) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Calls at the same time do not disturb each other.
func TestPackAndUnpack(t *testing.T) {
	var c codec
	var wg sync.WaitGroup
	inputs := [][]byte{nil, {}, []byte("{}"), text2(3000), noise(3000), jsonResult(100 << 10), noise(900 << 10)}
	for n := range 8 {
		inputs = append(inputs, jsonResult((n+3)<<10))
	}
	for _, in := range inputs {
		wg.Go(func() {
			b := c.pack(in)
			assert.Equal(t, b, new(codec).pack(in), "whatever its writer wrote before")
			assert.LessOrEqual(t, b.Stored, len(in))
			for range 3 {
				assert.Equal(t, b, c.pack(in), "a repeated write is identical")
				out, err := c.unpack(b, b.Data)
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(in, out))
			}
		})
	}
	wg.Wait()
}

func TestUnpackRefusesWhatIsNotTheResult(t *testing.T) {
	var c codec
	in := jsonResult(10 << 10)
	good := c.pack(in)
	require.Equal(t, encodingZlib, good.Encoding)
	for name, damage := range map[string]func(*protocol.Body){
		"another codec":        func(b *protocol.Body) { b.Encoding = "br" },
		"Zstandard":            func(b *protocol.Body) { b.Data = zstandard },
		"said to be Zstandard": func(b *protocol.Body) { b.Encoding = "zstd" },
		"a byte changed":       func(b *protocol.Body) { b.Data = bytes.Clone(b.Data); b.Data[len(b.Data)/2] ^= 1 },
		"the sum changed":      func(b *protocol.Body) { b.Data = bytes.Clone(b.Data); b.Data[len(b.Data)-1] ^= 1 },
		"no sum":               func(b *protocol.Body) { b.Data = b.Data[:len(b.Data)-4] },
		"a byte behind it":     func(b *protocol.Body) { b.Data = append(bytes.Clone(b.Data), 0) },
		"not compressed":       func(b *protocol.Body) { b.Data = in },
		"cut short":            func(b *protocol.Body) { b.Data = b.Data[:len(b.Data)-9] },
		"empty":                func(b *protocol.Body) { b.Data = nil },
		"a smaller size":       func(b *protocol.Body) { b.Size-- },
		"a larger size":        func(b *protocol.Body) { b.Size++ },
		"two frames":           func(b *protocol.Body) { b.Data = append(bytes.Clone(b.Data), b.Data...) },
		"plain, too short":     func(b *protocol.Body) { b.Encoding = ""; b.Data = in[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // a reader that failed is used again
				b := good
				damage(&b)
				_, err := c.unpack(b, b.Data)
				require.Error(t, err)
				out, err := c.unpack(good, good.Data)
				require.NoError(t, err)
				require.Equal(t, in, out)
			}
		})
	}
}

// zstandard is a frame of Zstandard: 3,000 bytes of {"a":1}.
var zstandard, _ = base64.StdEncoding.DecodeString("KLUv/WS4Cn0AADh7ImEiOjF9AVQHAy+uUz1+NwM=")

// A small stored form that expands to more than it should is stopped early.
func TestDecompressionIsBounded(t *testing.T) {
	var bomb bytes.Buffer
	w := zlib.NewWriter(&bomb)
	_, err := io.CopyN(w, zeros{}, 64<<20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Less(t, bomb.Len(), 100<<10)
	var c codec
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = c.decompress(bomb.Bytes(), 1000)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "more than 1000 bytes")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
