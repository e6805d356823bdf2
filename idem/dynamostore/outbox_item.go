package dynamostore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// outboxItem is the item of a message that an operation publishes, to be put in the operation's transaction. It
// needs no condition: its key belongs to the life of the record in whose transaction it is, and only one transaction
// of a life commits.
func outboxItem(e *outbox.Entry) map[string]types.AttributeValue {
	v := newValues(10, 4)
	v.str(schema.PK, e.Record)
	v.str(schema.SK, schema.OutboxSK+e.ID)
	v.num(schema.Version, schema.OutboxItemVersion)
	v.str(schema.State, schema.OutboxNew)
	v.str(schema.Destination, e.Destination)
	v.num(schema.Number, int64(e.Number))
	v.bytes(schema.Body, e.Body)
	v.num(schema.CreatedAt, millis(e.Created))
	v.str(schema.OpenShard, outboxShard(schema.OutboxShard, e.ID, &e.Message))
	v.item[schema.OpenDue] = livePlace(e.Destination, e.Created, e.Number)
	v.optStr(schema.OrderingKey, e.OrderingKey)
	if len(e.After) > 0 {
		ids := make([]types.AttributeValue, len(e.After))
		for i, id := range e.After {
			ids[i] = &types.AttributeValueMemberS{Value: id}
		}
		v.item[schema.After] = &types.AttributeValueMemberL{Value: ids}
	}
	v.optStr(schema.MessageType, e.Type)
	v.optStr(schema.ContentType, e.ContentType)
	if len(e.Attributes) > 0 {
		tags := newValues(len(e.Attributes), 0)
		for name, value := range e.Attributes {
			tags.str(name, value)
		}
		v.item[schema.Tags] = &types.AttributeValueMemberM{Value: tags.item}
	}
	return v.item
}

// fits refuses a message that is no item with any record's key.
func fits(m outbox.Message) error {
	m.ID = outbox.MessageID("", time.Time{}, "")
	if n := itemSize(outboxItem(&outbox.Entry{Message: m})); n > maxItem {
		return fmt.Errorf("the message has %d bytes as it is stored, and DynamoDB takes %d: store the body elsewhere "+
			"and send where it is", n, maxItem)
	}
	return nil
}

// outboxShard is the message's partition of the index: that of its ordering key,
// if it has one, so that a reader of a shard sees all messages of that key.
func outboxShard(prefix, id string, m *outbox.Message) string {
	if m.OrderingKey != "" {
		id = m.Destination + "\x00" + m.OrderingKey
	}
	return prefix + shardName(hash(id)%schema.OutboxShardCount)
}

// A place of a waiting message in its shard of the index is a number. Its digits are the hash of the
// message's destination, the hash of its lane if it was left to the sweep and notHeld if not, when it
// was committed, in milliseconds, and its number among those of its record, so that the messages of
// one transaction are listed in their order. So each destination is a range of places that begins
// with what was left to the sweep, lane by lane, and Held finds a lane without reading others. The
// last digit is 1: no form of the number has an exponent.
const (
	destinationDigits = 6
	laneDigits        = 9
	timeDigits        = 15
	numberDigits      = 4
	placeDigits       = destinationDigits + laneDigits + timeDigits + numberDigits + 1

	notHeld   = "999999999" // behind all lanes
	maxNumber = 9999
	// maxDigits is what a number may have in DynamoDB.
	maxDigits = 38
)

func outboxPlace(destination, lane string, at int64, n int) string {
	return fmt.Sprintf("%s%s%0*d%0*d1", destination, lane, timeDigits, min(max(at, 0), maxMillis), numberDigits, n)
}

// firstPlace begins the range of a destination.
func firstPlace(destination string) string {
	return outboxPlace(destination, strings.Repeat("0", laneDigits), 0, 0)
}

// lastPlace ends the part of a lane, or of what was not left to the sweep, that was committed by a time.
func lastPlace(destination, lane string, at int64) string {
	return outboxPlace(destination, lane, at, maxNumber)
}

// behindDestination is behind the places of a destination, behindLane behind those of a lane.
func behindDestination(destination string) string {
	return next(destination, placeDigits-destinationDigits)
}

func behindLane(at places) string {
	return next(at.destination+at.lane, placeDigits-destinationDigits-laneDigits)
}

func next(digits string, zeros int) string {
	n, _ := strconv.ParseInt(digits, 10, 64) // it has 15 digits at most
	return strconv.FormatInt(n+1, 10) + strings.Repeat("0", zeros)
}

// livePlace is a message's place before it is left to the sweep.
func livePlace(destination string, created time.Time, n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: outboxPlace(destinationHash(destination), notHeld, millis(created), n)}
}

// destinationHash tells a destination's messages from others in their shard.
func destinationHash(name string) string { return digits(name, destinationDigits, 1_000_000) }

// laneHash tells a lane's messages from those of the destination's other lanes.
func laneHash(orderingKey string) string { return digits(orderingKey, laneDigits, 999_999_999) }

func digits(s string, n int, below uint64) string {
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("%0*d", n, binary.BigEndian.Uint64(sum[:])%below)
}

// places are the parts of a place that are read.
type places struct {
	destination, lane string
	millis            int64
}

// placeOf reads an item's place. It has no parts if it is no place.
func placeOf(it item) (p places) {
	at, ok := it[schema.OpenDue].(*types.AttributeValueMemberN)
	if !ok {
		return p
	}
	whole, _, _ := strings.Cut(at.Value, ".")
	if len(whole) > placeDigits || !isDecimal(whole) {
		return p
	}
	s := leftPad(whole, placeDigits) // DynamoDB keeps no zeros at the beginning
	p.destination, s = s[:destinationDigits], s[destinationDigits:]
	p.lane, s = s[:laneDigits], s[laneDigits:]
	p.millis, _ = strconv.ParseInt(s[:timeDigits], 10, 64)
	if len(whole) < placeDigits-destinationDigits-laneDigits {
		p.lane = notHeld // of an earlier form, which has no lane
	}
	return p
}

func leftPad(s string, n int) string { return strings.Repeat("0", max(n-len(s), 0)) + s }

func isDecimal(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// hold moves a message with an ordering key to those that were left to the sweep.
func (u *update) hold(e *outbox.Entry) {
	if e.OrderingKey == "" {
		return
	}
	u.add(", open_due = :at")
	u.item[":at"] = &types.AttributeValueMemberN{Value: heldPlace(e)}
}

// heldPlace is a message's place when it is left to the sweep.
func heldPlace(e *outbox.Entry) string {
	return outboxPlace(destinationHash(e.Destination), laneHash(e.OrderingKey), millis(e.Created), e.Number)
}

func messageKey(ref outbox.Ref) item { return itemKey(ref.Record, schema.OutboxSK+ref.ID) }

func messageRef(it item) outbox.Ref {
	return outbox.Ref{Record: text(it, schema.PK), ID: strings.TrimPrefix(text(it, schema.SK), schema.OutboxSK)}
}

// ifAsRead is the condition that no operator has had the message sent again since it was read.
func (u *update) ifAsRead(e *outbox.Entry) string {
	if e.Resent == 0 {
		return ifNotResent
	}
	u.num(":resent", int64(e.Resent))
	return ifResent
}

// decodeMessage reads a message, strictly. What cannot be read says so.
func decodeMessage(it item) *outbox.Entry { return decodeEntry(it, true) }

// decodeEntry reads a message, or what is shown of it, which has no body.
func decodeEntry(it item, body bool) *outbox.Entry {
	ref := messageRef(it)
	d := &decoder{item: it, id: ref.Record}
	unreadable := func(err error) *outbox.Entry {
		return &outbox.Entry{
			Record: ref.Record, Unreadable: fmt.Errorf("message %s: %w", ref.ID, err),
			Message: outbox.Message{ID: ref.ID, Destination: text(it, schema.Destination),
				OrderingKey: text(it, schema.OrderingKey)},
		}
	}
	if v := d.num(schema.Version); d.err == nil && (v < 1 || v > schema.OutboxItemVersion) {
		d.fail(schema.Version, fmt.Sprintf("is %d, and this code reads up to %d", v, schema.OutboxItemVersion))
	}
	e := &outbox.Entry{
		Record: ref.Record,
		Message: outbox.Message{
			ID: ref.ID, TenantGroup: protocol.TenantGroup(ref.Record), Destination: d.str(schema.Destination),
			OrderingKey: d.optStr(schema.OrderingKey),
			Type:        d.optStr(schema.MessageType), ContentType: d.optStr(schema.ContentType), Attributes: d.tags(),
		},
		State:   outbox.State(d.str(schema.State)),
		Number:  int(d.numUpTo(schema.Number, maxNumber)),
		After:   d.texts(schema.After),
		Created: d.time(schema.CreatedAt),
		Tries:   int(d.optNum(schema.Tries, math.MaxInt32)),
		Reason:  d.optStr(schema.Reason),
		SentID:  d.optStr(schema.SentID),
		Resent:  int(d.optNum(schema.Resent, math.MaxInt32)),
	}
	e.NextTry, e.SentAt = d.optTime(schema.NextTry), d.optTime(schema.DispatchedAt)
	if e.Body = d.bin(schema.Body); body && e.Body == nil {
		d.fail(schema.Body, "is missing or not binary")
	}
	switch e.State {
	case outbox.New, outbox.Retrying, outbox.Dispatched, outbox.Dead:
	default:
		d.fail(schema.State, fmt.Sprintf("is %q, which is none of a message's", e.State))
	}
	if d.err != nil {
		return unreadable(d.err)
	}
	return e
}

// texts reads a list of strings; nil if there is none.
func (d *decoder) texts(name string) (list []string) {
	if !d.has(name) {
		return nil
	}
	l, ok := d.item[name].(*types.AttributeValueMemberL)
	if !ok {
		d.fail(name, "is not a list")
		return nil
	}
	for _, v := range l.Value {
		s, ok := v.(*types.AttributeValueMemberS)
		if !ok {
			d.fail(name, "has a value that is not a string")
			return nil
		}
		list = append(list, s.Value)
	}
	return list
}

func (d *decoder) tags() map[string]string {
	if !d.has(schema.Tags) {
		return nil
	}
	members := d.members(schema.Tags)
	tags := make(map[string]string, len(members))
	for name := range members {
		tags[name] = text(members, name)
		if tags[name] == "" {
			d.fail(schema.Tags, "has a value that is not a string")
		}
	}
	return tags
}

// A cursor is the index key of the last message of a page, without the shard, or the place where the next page
// begins.

func isPlace(cursor, since, until string) bool {
	return isDecimal(cursor) && len(cursor) <= maxDigits && leftPad(cursor, maxDigits) >= leftPad(since, maxDigits) &&
		leftPad(cursor, maxDigits) <= leftPad(until, maxDigits)
}

func formatCursor(last item) string {
	at, ok := last[schema.OpenDue].(*types.AttributeValueMemberN)
	if !ok {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(at.Value + " " + text(last, schema.SK) + " " +
		text(last, schema.PK)))
}

func noCursor(cursor string) error {
	return &protocol.ConfigError{What: "page",
		Problem: fmt.Sprintf("dynamostore: %q is no cursor: pass what the page before returned", cursor)}
}

// parseCursor refuses what no Query of the shard between the places can have returned: DynamoDB
// would refuse it with an error that says nothing of a page.
func parseCursor(shard, cursor, since, until string) (item, error) {
	if cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.SplitN(string(b), " ", 3)
	if err != nil || len(parts) != 3 || len(parts[0]) > maxDigits || !isKey(parts[2], parts[1]) {
		return nil, noCursor(cursor)
	}
	whole, fraction, _ := strings.Cut(parts[0], ".") // a fraction is of another version
	if !isDecimal(whole+fraction) || !isPlace(whole, since, until) {
		return nil, noCursor(cursor)
	}
	v := newValues(3, 0)
	v.str(schema.OpenShard, shard)
	v.str(schema.SK, parts[1])
	v.str(schema.PK, parts[2])
	v.item[schema.OpenDue] = &types.AttributeValueMemberN{Value: parts[0]}
	return v.item, nil
}

// isKey reports whether an item can have the key: at most 2,048 and 1,024 bytes of UTF-8, see
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html.
func isKey(pk, sk string) bool {
	return pk != "" && sk != "" && len(pk) <= 2048 && len(sk) <= 1024 && utf8.ValidString(pk) && utf8.ValidString(sk)
}
