package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/redisstore"
	"github.com/idem-go/idempotency/idem/testenv/duel"
	"github.com/idem-go/idempotency/idem/testenv/redis"
)

// byHand is what a team would write with the same promise: a claim that says what is there, that others can take over
// when its lease is over, and that a sweep finds; and an end that only its owner writes.
type byHand struct{ client valkey.Client }

var (
	claimByHand = valkey.NewLuaScript(`
local r = redis.call('HMGET', KEYS[1], 'state', 'owner', 'fingerprint', 'lease', 'body')
if r[1] then return {r[1], r[2], r[3], r[4], r[5] or ''} end
redis.call('HSET', KEYS[1], 'state', 'in_progress', 'owner', ARGV[1], 'attempt', 1, 'fingerprint', ARGV[2],
	'lease', ARGV[3], 'created', ARGV[4], 'updated', ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[3], KEYS[1])
return {}`)
	endByHand = valkey.NewLuaScript(`
local r = redis.call('HMGET', KEYS[1], 'state', 'owner')
if r[1] ~= 'in_progress' or r[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'state', 'completed', 'body', ARGV[2], 'updated', ARGV[3])
redis.call('ZREM', KEYS[2], KEYS[1])
redis.call('PEXPIREAT', KEYS[1], ARGV[4])
return 1`)
)

func (h byHand) claim(ctx context.Context, id, owner string) ([]string, error) {
	call, now := duel.Execution(id), time.Now()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	got, err := claimByHand.Exec(ctx, h.client, []string{"{h}" + call.Key.ID(), "{h}due"}, []string{owner,
		string(call.Fingerprint), millis(now.Add(30 * time.Second)), millis(now)}).AsStrSlice()
	if err == nil && len(got) > 0 && got[2] != string(call.Fingerprint) {
		err = errors.New("another request")
	}
	return got, err
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

func (h byHand) first(ctx context.Context, id string) error {
	owner := rand.Text()
	if got, err := h.claim(ctx, id, owner); err != nil || len(got) > 0 {
		return errors.Join(err, errors.New("not claimed"))
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	now := time.Now()
	n, err := endByHand.Exec(ctx, h.client, []string{"{h}" + duel.Operation.Key("acme", id).ID(), "{h}due"},
		[]string{owner, string(duel.Body), millis(now), millis(now.Add(24 * time.Hour))}).AsInt64()
	if err == nil && n != 1 {
		err = errors.New("the claim is lost")
	}
	return err
}

func (h byHand) replay(ctx context.Context, id string) error {
	got, err := h.claim(ctx, id, rand.Text())
	if err == nil && (len(got) == 0 || len(got[4]) != len(duel.Body)) {
		err = errors.New("not a replay")
	}
	return err
}

// BenchmarkByHand compares calls with scripts by hand, on a server that writes to its disk. A script by hand takes
// less than the engine does besides its own, of a core that many callers share.
func BenchmarkByHand(b *testing.B) {
	server := redis.Start(b, "appendonly=yes", "appendfsync=always")
	require.NoError(b, duel.Apart(server.PID()))
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{server.Address()}, DisableCache: true,
		DisableRetry: true})
	require.NoError(b, err)
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{Promise: redisstore.Durable})
	require.NoError(b, err)
	side, err := duel.NewSide(b.Context(), store)
	require.NoError(b, err)
	script := func(ctx context.Context, id string) error {
		return redisstore.MeetClaim(ctx, store, duel.Operation.Key("acme", id).ID())
	}
	hand := byHand{client}
	require.NoError(b, duel.Record(b.Context(), hand.first))
	for b.Loop() {
		require.NoError(b, duel.Run(b.Context(), duel.Path{Name: "first", ID: duel.NewID, ByHand: hand.first,
			Idem: side.First, Least: 0.6}, duel.Path{Name: "replay", ID: duel.Recorded, ByHand: hand.replay, Idem: side.Replay,
			Least: 0.3}, duel.Path{Name: "script", ID: duel.Recorded, ByHand: hand.replay, Idem: script, Least: 0.8}))
	}
}
