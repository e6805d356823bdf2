package dynamostore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Sizes and parts are the same with a sealer.
func TestResultsOfAllSizes(t *testing.T) {
	t.Parallel()
	f := open(t, nil)
	sealed := f.on(sealing(newGCM(t, 1)))
	ctx := t.Context()
	for _, tc := range []struct {
		name   string
		result []byte
		parts  int
		enc    string
	}{
		{"nil", nil, 0, ""},
		{"0 B", []byte{}, 0, ""},
		{"1 KB", noise(1 << 10), 0, ""},
		{"2 KB of text", text2(2 << 10), 0, ""},
		{"2 KB of text and one", text2(2<<10 + 1), 0, encodingZlib},
		{"4 KB", noise(4 << 10), 0, ""},
		{"4 KB and one", noise(4<<10 + 1), 1, ""},
		{"390 KB", noise(390 << 10), 2, ""},
		{"400 KB of JSON", jsonResult(400 << 10), 1, encodingZlib},
		{"5.5 MB of JSON", jsonResult(5632 << 10), 5, encodingZlib},
	} {
		for name, s := range map[string]*Store{"plain": f.Store, "sealed": sealed} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				id := t.Name()
				require.NoError(t, s.Acquire(ctx, base, claim(id, "o1")))
				require.NoError(t, s.Finish(ctx, base, completion(id, "o1", tc.result)))
				rec := isConflict(t, s.Acquire(ctx, base, claim(id, "o2")))
				enc := tc.enc
				if s == sealed && len(tc.result) > 0 {
					enc = strings.TrimPrefix(enc+"+"+encodingSealed, "+")
					_, err := f.Result(ctx, rec)
					require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
					require.ErrorContains(t, err, "Options.Sealer")
				}
				require.Equal(t, []any{tc.parts, enc, len(tc.result)}, []any{rec.Body.Parts, rec.Body.Encoding, rec.Body.Size})
				got, err := s.Result(ctx, rec)
				require.NoError(t, err)
				require.NotNil(t, got)
				require.True(t, bytes.Equal(tc.result, got))

				// A failed condition is billed by the record's size.
				require.Less(t, itemSize(f.raw(t, id)), 5<<10)
				for n := range tc.parts {
					it := f.raw(t, partKeyPrefix(id, "o1", rec.Body.Digest)+strconv.Itoa(n))
					require.Equal(t, num(strconv.FormatInt(base.Add(48*time.Hour).Unix(), 10)), it[schema.ExpiresAt],
						"a part outlives its record by a day")
				}
			})
		}
	}
}

// What is wrong with the parts is never a result, nor an absent one.
func TestDamagedPartsFailClosed(t *testing.T) {
	t.Parallel()
	f := open(t, nil)
	ctx := t.Context()
	large := noise(600 << 10)
	cut := func(by int) func(item) {
		return func(it item) {
			b := it[schema.Data].(*types.AttributeValueMemberB)
			b.Value = b.Value[:len(b.Value)-by]
		}
	}
	digest := sha256.Sum256(large)
	part := func(id string, n int) string { return partKeyPrefix(id, "o1", digest[:]) + strconv.Itoa(n) }
	for _, tc := range []struct {
		name, says string
		damage     func(id string)
	}{
		{"deleted", "part 2 of 3 of its result is missing", func(id string) { f.remove(t, part(id, 1)) }},
		{"all deleted", "missing", func(id string) {
			for n := range 3 {
				f.remove(t, part(id, n))
			}
		}},
		{"cut short", "bytes and should have", func(id string) { f.change(t, part(id, 2), cut(1)) }},
		{"emptied", "bytes and should have", func(id string) { f.change(t, part(id, 0), cut(partSize)) }},
		{"altered", "altered", func(id string) {
			f.change(t, part(id, 1), func(it item) { it[schema.Data].(*types.AttributeValueMemberB).Value[7] ^= 1 })
		}},
		{"swapped", "bytes and should have", func(id string) {
			two := f.raw(t, part(id, 2))[schema.Data]
			f.change(t, part(id, 0), func(it item) { it[schema.Data] = two })
		}},
		{"not binary", "part 1 of 3 of its result is missing", func(id string) {
			f.change(t, part(id, 0), func(it item) { it[schema.Data] = str("oops") })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := t.Name()
			f.completed(t, id, large)
			tc.damage(id)
			b, err := f.Result(ctx, f.get(t, id))
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
			require.ErrorContains(t, err, tc.says)
			require.Nil(t, b)
		})
	}
}

// A second, other result of the same attempt is refused, and its parts do not overwrite those of the recorded one.
func TestPartsOfARefusedWrite(t *testing.T) {
	f := open(t, nil)
	recorded := noise(20 << 10)
	f.completed(t, "k", recorded)
	other := completion("k", "o1", noise(20<<10))
	other.Write = "o1.other"
	got, err := f.Result(t.Context(), isConflict(t, f.Finish(t.Context(), base, other)))
	require.NoError(t, err)
	require.Equal(t, recorded, got)
}

func digestOf(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

// stingy is a client that leaves keys of a BatchGetItem unprocessed: all but two, or every one.
type stingy struct {
	Client
	t     *testing.T
	takes func(call int) int
	asked []int
}

func (c *stingy) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput,
	o ...func(*dynamodb.Options)) (out *dynamodb.BatchGetItemOutput, err error) {
	out = new(dynamodb.BatchGetItemOutput)
	for table, asked := range in.RequestItems {
		require.True(c.t, *asked.ConsistentRead)
		c.asked = append(c.asked, len(asked.Keys))
		n := min(c.takes(len(c.asked)), len(asked.Keys))
		taken, left := asked, asked
		taken.Keys, left.Keys = asked.Keys[:n], asked.Keys[n:]
		if n > 0 {
			in := &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: taken}}
			if out, err = c.Client.BatchGetItem(ctx, in, o...); err != nil {
				c.asked = c.asked[:len(c.asked)-1] // a busy machine has used up the try: it is made again
				return nil, err
			}
		}
		if len(left.Keys) > 0 {
			out.UnprocessedKeys = map[string]types.KeysAndAttributes{table: left}
		}
	}
	return out, nil
}

// Keys that a throttled table leaves unprocessed are asked for again, and only they.
func TestUnprocessedKeys(t *testing.T) {
	f := open(t, nil)
	large := noise(1200 << 10)
	f.completed(t, "k", large)
	rec := f.get(t, "k")
	client := &stingy{Client: f.client, t: t, takes: func(call int) int { return []int{2, 0, 2, 2}[call-1] }}
	f.client = client
	got, err := f.Result(t.Context(), rec)
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(large), sha256.Sum256(got))
	require.Equal(t, []int{5, 3, 3, 1}, client.asked)

	short, cancel := context.WithCancel(t.Context())
	defer cancel()
	client.takes = func(call int) int { endAfter(7, call-1, cancel); return 0 }
	_, err = f.Result(short, rec)
	isStoreError(t, err, false)
	require.NotErrorIs(t, err, protocol.ErrRecordUnreadable, "a throttled table is no damage")
}

// The number of the parts that a record claims is checked before they are read.
func TestAbsurdPartsAreNotRead(t *testing.T) {
	s, n := scripted(nil)
	digest := digestOf(nil)
	for _, b := range []protocol.Body{
		{Parts: maxParts + 1, Stored: (maxParts + 1) * partSize, Digest: digest},
		{Parts: 1, Stored: 5 * partSize, Digest: digest},
		{Parts: 5, Stored: 1, Digest: digest},
		{Parts: 1, Stored: 5000},
	} {
		_, err := s.Result(t.Context(), &protocol.Record{ID: "k", Owner: "o", State: protocol.Completed, Body: b})
		require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
	}
	require.Zero(t, *n)
}

// A part's key holds the record's id and owner, so that IAM's leading keys confine it as they do the record.
func TestPartKeys(t *testing.T) {
	require.Equal(t, "t#op#digest#part#owner#AQIDBAUGBwgJ#",
		partKeyPrefix("t#op#digest", "owner", []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}))
}
