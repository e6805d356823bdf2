package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
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

// Waiting implements [outbox.Store]: a Query on the index, and up to nine more where the lanes are long.
func (b *Outbox) Waiting(ctx context.Context, shard int, destination string, before time.Time,
	cursor string) ([]outbox.Ref, string, error) {
	d := destinationHash(destination)
	return b.waiting(ctx, "Waiting", shard, firstPlace(d), lastPlace(d, notHeld, millis(before)), nil, before, cursor)
}

// Strays implements [outbox.Store]: as Waiting, with a Query for each of the destinations for which
// something waits in the shard.
func (b *Outbox) Strays(ctx context.Context, shard int, destinations []string, before time.Time,
	cursor string) ([]outbox.Ref, string, error) {
	skip := map[string]bool{}
	for _, d := range destinations {
		skip[destinationHash(d)] = true
	}
	return b.waiting(ctx, "Strays", shard, "0", behindDestination("999999"), skip, before, cursor)
}

// maxQueries bounds the requests for a page of what waits.
const maxQueries = 10

// waiting lists the messages with places between since and until, without those of some destinations.
// Behind MaxHeld messages of a lane, and before a destination that is left out, it goes to the next place
// that it wants.
func (b *Outbox) waiting(ctx context.Context, op string, shard int, since, until string, skip map[string]bool,
	before time.Time, cursor string) (refs []outbox.Ref, next string, err error) {
	name, err := outboxShardName(op, schema.OutboxShard, shard)
	if err != nil {
		return nil, "", err
	}
	var from item
	if isPlace(cursor, since, until) {
		since = cursor
	} else if from, err = parseCursor(name, cursor, since, until); err != nil {
		return nil, "", err
	}
	k := b.retry.begin(ctx, op)
	defer k.end()
	for range maxQueries {
		out, err := b.queryIndex(k, b.client, name, since, until, from, maxBatchGet)
		if err != nil {
			return nil, "", err
		}
		from, next = out.LastEvaluatedKey, formatCursor(out.LastEvaluatedKey)
		var at places
		count := 0 // of the lane
		for _, it := range out.Items {
			last := at
			if at = placeOf(it); at.destination != last.destination || at.lane != last.lane {
				count = 0
			}
			count++
			if skip[at.destination] {
				next = behindDestination(at.destination)
				break
			}
			if at.lane == notHeld && at.millis <= millis(before) || at.lane != notHeld && count <= outbox.MaxHeld {
				refs = append(refs, messageRef(it))
			}
		}
		if next != "" && !skip[at.destination] && at.lane != notHeld && count >= outbox.MaxHeld {
			next = behindLane(at)
		}
		if next == "" || len(refs) >= maxBatchGet {
			break
		}
		if isPlace(next, since, until) {
			since, from = next, nil
		}
	}
	return refs, next, nil
}

// Held implements [outbox.Store]: a Query on the index for each destination in each of the lanes' shards,
// and another one for each lane where more was left to the sweep than fits into a page.
func (b *Outbox) Held(ctx context.Context, lanes []outbox.Lane) (map[outbox.Lane][]outbox.Ref, error) {
	type part struct{ shard, destination string }
	parts := map[part]map[string][]outbox.Lane{} // by the lane's hash
	for _, l := range lanes {
		m := outbox.Message{Destination: l.Destination, OrderingKey: l.OrderingKey}
		p, h := part{outboxShard(schema.OutboxShard, "", &m), destinationHash(l.Destination)}, laneHash(l.OrderingKey)
		if parts[p] == nil {
			parts[p] = map[string][]outbox.Lane{}
		}
		parts[p][h] = append(parts[p][h], l)
	}
	var (
		g     sync.WaitGroup
		mu    sync.Mutex
		found = map[outbox.Lane][]outbox.Ref{}
		first error
	)
	for p, lanes := range parts {
		g.Go(func() {
			k := b.retry.begin(ctx, "Held")
			defer k.end()
			held, err := b.held(k, p.shard, p.destination, slices.Sorted(maps.Keys(lanes)))
			mu.Lock()
			defer mu.Unlock()
			first = cmp.Or(first, err)
			for h, refs := range held {
				for _, l := range lanes[h] {
					found[l] = refs
				}
			}
		})
	}
	g.Wait()
	return found, first
}

// HeldAfter implements [outbox.Store]: a Query on the index.
func (b *Outbox) HeldAfter(ctx context.Context, e *outbox.Entry) ([]outbox.Ref, error) {
	d, l := destinationHash(e.Destination), laneHash(e.OrderingKey)
	shard, place := outboxShard(schema.OutboxShard, "", &e.Message), heldPlace(e)
	from := messageKey(e.Ref()) // others may have been committed in the same millisecond
	from[schema.OpenShard] = &types.AttributeValueMemberS{Value: shard}
	from[schema.OpenDue] = &types.AttributeValueMemberN{Value: place}
	k := b.retry.begin(ctx, "HeldAfter")
	defer k.end()
	out, err := b.queryIndex(k, b.client, shard, place, lastPlace(d, l, maxMillis), from, outbox.MaxHeld)
	if err != nil {
		return nil, err
	}
	refs := make([]outbox.Ref, len(out.Items))
	for i, it := range out.Items {
		refs[i] = messageRef(it)
	}
	return refs, nil
}

// held lists what was left to the sweep of the lanes with these hashes, in their order.
func (b *Outbox) held(k *call, shard, destination string, lanes []string) (map[string][]outbox.Ref, error) {
	found := map[string][]outbox.Ref{}
	for len(lanes) > 0 {
		since, until := outboxPlace(destination, lanes[0], 0, 0), lastPlace(destination, lanes[len(lanes)-1], maxMillis)
		out, err := b.queryIndex(k, b.client, shard, since, until, nil, maxBatchGet)
		if err != nil {
			return nil, err
		}
		delete(found, lanes[0]) // the end of a page has cut it off
		for _, it := range out.Items {
			h := placeOf(it).lane
			if _, wanted := slices.BinarySearch(lanes, h); wanted && len(found[h]) < outbox.MaxHeld {
				found[h] = append(found[h], messageRef(it))
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			break
		}
		end := placeOf(out.LastEvaluatedKey).lane
		lanes = slices.DeleteFunc(lanes, func(h string) bool { return h < end || len(found[h]) == outbox.MaxHeld })
	}
	return found, nil
}

// Dead lists the dead letters of one shard (0 to 15), the oldest first. Cursors are as with Waiting.
func (b *Outbox) Dead(ctx context.Context, shard int, cursor string) ([]*outbox.Entry, string, error) {
	name, err := outboxShardName("Dead", schema.DeadShard, shard)
	if err != nil {
		return nil, "", err
	}
	k := b.retry.begin(ctx, "Dead")
	defer k.end()
	refs, next, err := b.list(k, name, "0", decimal(maxMillis), cursor)
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

func outboxShardName(op, prefix string, shard int) (string, error) {
	if shard < 0 || shard >= schema.OutboxShardCount {
		return "", fmt.Errorf("dynamostore: %s: there is no shard %d", op, shard)
	}
	return prefix + shardName(uint32(shard)), nil
}

// list reads one page of a part of a shard of the index.
func (b *Outbox) list(k *call, shard, since, until, cursor string) (refs []outbox.Ref, next string, err error) {
	from, err := parseCursor(shard, cursor, since, until)
	if err != nil {
		return nil, "", err
	}
	out, err := b.queryIndex(k, b.client, shard, since, until, from, maxBatchGet)
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
func (b *Outbox) Dispatch(ctx context.Context, now time.Time, e *outbox.Entry, sentID string,
	expires time.Time) (bool, error) {
	u := newUpdate("SET in_state = :state, dispatched_at = :now, expires_at = :expires", 2, 3)
	u.drop("open_shard, open_due, next_try, dead_at")
	if sentID != "" {
		u.add(", sent_id = :sent")
		u.str(":sent", sentID)
	} else {
		u.drop("sent_id")
	}
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
	cond += u.ifAsRead(e)
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
