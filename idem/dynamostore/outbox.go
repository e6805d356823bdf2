package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
)

// OutboxClient is what an [Outbox] uses of a *dynamodb.Client.
type OutboxClient interface {
	Client
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// Outbox finds the messages that operations have published in their transactions,
// and notes what becomes of them: the [outbox.Store] of a relay. It needs
// dynamodb:BatchGetItem and UpdateItem on the table and Query on its index. It is
// safe for concurrent use.
type Outbox struct {
	*Store
	client OutboxClient
}

var _ outbox.Store = (*Outbox)(nil)

// NewOutbox returns the outbox of a store's table. It makes no call. Mistakes are
// an [*idem.ConfigError].
func NewOutbox(client OutboxClient, table string, o *Options) (*Outbox, error) {
	s, err := New(client, table, o)
	if err != nil {
		return nil, err
	}
	return &Outbox{Store: s, client: client}, nil
}

// maxBatchGet is DynamoDB's limit for a BatchGetItem.
const maxBatchGet = 100

// Load implements [outbox.Store]: consistent BatchGetItems.
func (b *Outbox) Load(ctx context.Context, refs []outbox.Ref, size int) (map[outbox.Ref]*outbox.Entry, int, error) {
	k := b.retry.begin(ctx, "Load")
	defer k.end()
	return b.load(k, refs, size)
}

// load first reads as many messages as fit if all are as large as an item may be. Then it reads as many as
// fit at the average size so far, up to four times the first number: the next ones may be larger.
func (b *Outbox) load(k *call, refs []outbox.Ref, size int) (map[outbox.Ref]*outbox.Entry, int, error) {
	found, read, sum := map[outbox.Ref]*outbox.Entry{}, 0, 0
	first := min(max(1, size/maxItem), maxBatchGet)
	for n := first; read < len(refs) && n > 0; {
		n = min(n, len(refs)-read)
		keys := make([]map[string]types.AttributeValue, n)
		for i, ref := range refs[read : read+n] {
			keys[i] = messageKey(ref)
		}
		err := b.batchGet(k, keys, func(it item) {
			e := decodeMessage(it)
			found[e.Ref()] = e
		})
		if err != nil {
			return nil, 0, err
		}
		for i, ref := range refs[read : read+n] {
			if e := found[ref]; e != nil && read > 0 && sum+e.Size() > size {
				for _, ref := range refs[read : read+n-i] {
					delete(found, ref)
				}
				return found, read, nil
			} else if e != nil {
				sum += e.Size()
			}
			read++
		}
		if n = min(4*first, maxBatchGet); sum > 0 {
			n = min(n, (size-sum)/(sum/read+1))
		}
	}
	return found, read, nil
}

// Waiting implements [outbox.Store]: a Query on the index.
func (b *Outbox) Waiting(ctx context.Context, shard int, before time.Time,
	cursor string) ([]outbox.Ref, string, error) {
	if shard < 0 || shard >= schema.OutboxShardCount {
		return nil, "", fmt.Errorf("dynamostore: Waiting: there is no shard %d", shard)
	}
	k := b.retry.begin(ctx, "Waiting")
	defer k.end()
	// The cursor begins with the part that the page is in.
	name := shardName(uint32(shard))
	if rest, ok := strings.CutPrefix(cursor, heldPart); ok || cursor == "" {
		refs, next, err := b.list(k, schema.HeldShard+name, maxMillis, rest)
		if err != nil || next != "" {
			return refs, heldPart + next, err
		}
		if len(refs) > 0 {
			return refs, newPart, nil
		}
		cursor = newPart
	}
	rest, ok := strings.CutPrefix(cursor, newPart)
	if !ok {
		return nil, "", noCursor(cursor)
	}
	refs, next, err := b.list(k, schema.OutboxShard+name, millis(before), rest)
	if next != "" {
		next = newPart + next
	}
	return refs, next, err
}

// Parts of what waits in a shard, in cursors: what was left to the sweep, and all
// else.
const (
	heldPart = "held."
	newPart  = "new."
)

// Held implements [outbox.Store]: a Query on the index for each of the lanes' shards
// (16 at most), which reads the places of all that was left to the sweep in it.
func (b *Outbox) Held(ctx context.Context, lanes []outbox.Lane) (map[outbox.Lane][]outbox.Ref, error) {
	shards := map[string]map[string][]outbox.Lane{} // by the lane's hash
	for _, l := range lanes {
		shard := outboxShard(schema.HeldShard, "", &outbox.Message{Destination: l.Destination, OrderingKey: l.OrderingKey})
		if shards[shard] == nil {
			shards[shard] = map[string][]outbox.Lane{}
		}
		h := laneHash(l)
		shards[shard][h] = append(shards[shard][h], l)
	}
	var (
		g     sync.WaitGroup
		mu    sync.Mutex
		found = map[outbox.Lane][]outbox.Ref{}
		first error
	)
	for shard, lanes := range shards {
		g.Go(func() {
			k := b.retry.begin(ctx, "Held")
			defer k.end()
			for from := item(nil); ; {
				out, err := b.queryIndex(k, b.client, shard, 0, maxMillis, from, 0)
				mu.Lock()
				if err != nil {
					first = cmp.Or(first, err)
					mu.Unlock()
					return
				}
				for _, it := range out.Items {
					for _, l := range lanes[laneAt(it)] {
						if len(found[l]) < outbox.MaxHeld {
							found[l] = append(found[l], messageRef(it))
						}
					}
				}
				mu.Unlock()
				if from = out.LastEvaluatedKey; len(from) == 0 {
					return
				}
			}
		})
	}
	g.Wait()
	return found, first
}

// Dead lists the dead letters of one shard (0 to 15), the oldest first. Cursors are as with Waiting.
func (b *Outbox) Dead(ctx context.Context, shard int, cursor string) ([]*outbox.Entry, string, error) {
	if shard < 0 || shard >= schema.OutboxShardCount {
		return nil, "", fmt.Errorf("dynamostore: Dead: there is no shard %d", shard)
	}
	k := b.retry.begin(ctx, "Dead")
	defer k.end()
	refs, next, err := b.list(k, schema.DeadShard+shardName(uint32(shard)), maxMillis, cursor)
	if err != nil {
		return nil, "", err
	}
	found, _, err := b.load(k, refs, math.MaxInt)
	if err != nil {
		return nil, "", err
	}
	var entries []*outbox.Entry
	for _, ref := range refs {
		if e := found[ref]; e != nil {
			entries = append(entries, e)
		}
	}
	return entries, next, nil
}

// list reads one page of a partition of the index.
func (b *Outbox) list(k *call, shard string, until int64, cursor string) (refs []outbox.Ref, next string, err error) {
	from, err := parseCursor(shard, cursor, 0, until)
	if err != nil {
		return nil, "", err
	}
	out, err := b.queryIndex(k, b.client, shard, 0, until, from, maxBatchGet)
	if err != nil {
		return nil, "", err
	}
	for _, it := range out.Items {
		refs = append(refs, messageRef(it))
	}
	return refs, formatCursor(out.LastEvaluatedKey), nil
}

// Begin implements [outbox.Store]: one UpdateItem. It changes the state, so that the
// stream's filter does not take the note for a new message.
func (b *Outbox) Begin(ctx context.Context, e *outbox.Entry, tries int, next time.Time) (bool, error) {
	u := newUpdate("SET tries = :tries, next_try = :next, in_state = :retrying", 4, 3)
	u.num(":tries", int64(tries))
	u.num(":next", millis(next))
	u.hold(e)
	return b.change(ctx, "Begin", e, u, ifWaiting+ifUntried, func(now *outbox.Entry) bool {
		return now.State == outbox.Retrying && now.Tries == tries && millis(now.NextTry) == millis(next)
	})
}

// Retry implements [outbox.Store]: one UpdateItem.
func (b *Outbox) Retry(ctx context.Context, e *outbox.Entry, tries int, next time.Time, reason string) (bool, error) {
	u := newUpdate("SET tries = :tries, next_try = :next, reason = :reason, in_state = :retrying", 6, 3)
	u.hold(e)
	u.num(":tries", int64(tries))
	u.num(":known", int64(max(tries, e.Tries)))
	u.num(":next", millis(next))
	u.str(":reason", reason)
	return b.change(ctx, "Retry", e, u, ifWaiting+ifNotTried, nil)
}

// DeadLetter implements [outbox.Store]: one UpdateItem.
func (b *Outbox) DeadLetter(ctx context.Context, now time.Time, e *outbox.Entry, tries int,
	reason string) (bool, error) {
	u := newUpdate("SET in_state = :state, tries = :tries, reason = :reason, dead_at = :now, "+
		"open_shard = :open_shard, open_due = :now REMOVE next_try", 5, 3)
	u.str(":state", schema.OutboxDead)
	u.num(":tries", int64(tries))
	u.str(":reason", reason)
	u.num(":now", millis(now))
	u.str(":open_shard", outboxShard(schema.DeadShard, e.ID, &e.Message))
	return b.change(ctx, "DeadLetter", e, u, ifWaiting, func(now *outbox.Entry) bool {
		return now.State == outbox.Dead && now.Tries == tries && now.Reason == reason
	})
}

// Dispatch implements [outbox.Store]: one UpdateItem.
func (b *Outbox) Dispatch(ctx context.Context, now time.Time, e *outbox.Entry, expires time.Time) (bool, error) {
	u := newUpdate("SET in_state = :state, dispatched_at = :now, expires_at = :expires "+
		"REMOVE open_shard, open_due, next_try, dead_at", 1, 3)
	u.str(":state", schema.OutboxDispatched)
	u.num(":now", millis(now))
	u.num(":expires", expiry(expires))
	return b.change(ctx, "Dispatch", e, u, ifUnsent,
		func(now *outbox.Entry) bool { return now.State == outbox.Dispatched })
}

// change updates a message on the condition that it is the one that was read. Where
// an earlier try of the same update may have been applied, and has made its own
// condition false, done tells by the message as it is now whether it was. That it may
// take another's update of the same content for its own does no harm: a repeat at most.
func (b *Outbox) change(ctx context.Context, op string, e *outbox.Entry, u *update, cond string,
	done func(*outbox.Entry) bool) (bool, error) {
	k := b.retry.begin(ctx, op)
	defer k.end()
	u.num(":created", millis(e.Created))
	if cond != ifUnsent {
		u.str(":new", schema.OutboxNew)
		u.str(":retrying", schema.OutboxRetrying)
	}
	expr := u.expression()
	in := &dynamodb.UpdateItemInput{
		TableName: b.table, Key: messageKey(e.Ref()), UpdateExpression: &expr, ConditionExpression: &cond,
		ExpressionAttributeValues: u.item, ReturnValuesOnConditionCheckFailure: allOld,
	}
	err := k.do(true, k.attempt, func(ctx context.Context) error {
		_, err := b.client.UpdateItem(ctx, in, b.optFns...)
		return err
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if !k.maybe || done == nil || failed.Item == nil {
			return false, nil
		}
		now := decodeMessage(failed.Item)
		return now.Unreadable == nil && now.Created.Equal(e.Created) && done(now), nil
	}
	return err == nil, err
}
