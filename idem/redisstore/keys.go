package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// tags has the two characters of each group's hash tag: 48 groups have 48 slots, as far apart as can be, so that each
// node of a cluster has about as many.
const tags = "cr18svg25xog1tdjjyfl3rvh6xd2bt28pvf41uuhey3fiygjbjly6f5rh94uc4uvkagtq63xk99scloy5f4tr6dtzcvvhafr"

// keys are the names of keys, which begin with it.
type keys string

func (k keys) of(group int) string   { return string(k) + ":{" + tags[2*group:2*group+2] + "}:" }
func (k keys) rows(group int) string { return k.of(group) + "row:" }
func (k keys) row(id string) string  { return k.rows(casstore.Group(id)) + id }

// all is a pattern of all rows.
func (k keys) all() string { return string(k) + ":{??}:row:*" }

// due has the names of rows that are due, changes those of changes: sets in the order of the names.
func (k keys) due(group int) string     { return k.of(group) + "due" }
func (k keys) changes(group int) string { return k.of(group) + "changes" }
func (k keys) change(group int, id, name string) string {
	return k.of(group) + "change:" + id + " " + name
}

// The digits of numbers in names, which are in the order of the numbers.
const (
	shardDigits  = 2
	secondDigits = 12
	milliDigits  = 15
)

func number(digits int, n int64) string { return fmt.Sprintf("%0*d", digits, max(n, 0)) }

// dueName is the name of a row that is due.
func dueName(shard int, ms int64, id string) string {
	return number(shardDigits, int64(shard)) + number(milliDigits, ms) + id
}

func parseDue(name string) (at casstore.Place, err error) {
	const n = shardDigits + milliDigits
	if len(name) > n {
		ms, err := strconv.ParseInt(name[shardDigits:n], 10, 64)
		if err == nil {
			return casstore.Place{Due: time.UnixMilli(ms).UTC(), ID: name[n:]}, nil
		}
	}
	return at, notOurs(name)
}

// names are those of a change: among its record's, among its shard's, and among all by expiry. The script takes the
// last one apart.
type names struct{ ofRecord, ofShard, expires string }

func entryNames(e *casstore.Entry) names {
	ofShard := shardOf(e.Shard, e.At) + " " + e.ID + " " + e.Name
	return names{recordOf(e.ID) + number(milliDigits, e.At.UnixMilli()) + " " + e.Name, ofShard,
		"x" + number(secondDigits, e.Expires.Add(slack).Unix()) + " " + ofShard[1:]}
}

// recordOf begins the names of a record's changes, shardOf those of a shard's at a time.
func recordOf(id string) string { return "r" + id + " " }
func shardOf(shard int, at time.Time) string {
	ms := int64(0)
	if !at.IsZero() {
		ms = at.UnixMilli()
	}
	return "s" + number(shardDigits, int64(shard)) + " " + number(milliDigits, ms)
}

func parseOfRecord(name string) (casstore.Entry, error) {
	p := strings.SplitN(name, " ", 3)
	if len(p) != 3 {
		return casstore.Entry{}, notOurs(name)
	}
	return parsed(name, p[1], strings.TrimPrefix(p[0], "r"), p[2])
}

func parseOfShard(name string) (casstore.Entry, error) {
	p := strings.SplitN(name, " ", 4)
	if len(p) != 4 {
		return casstore.Entry{}, notOurs(name)
	}
	return parsed(name, p[1], p[2], p[3])
}

func parsed(name, at, id, entry string) (casstore.Entry, error) {
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return casstore.Entry{}, notOurs(name)
	}
	return casstore.Entry{ID: id, Name: entry, At: time.UnixMilli(ms).UTC()}, nil
}

// slack is for how long what has expired stays, for clocks of callers that are behind that of the server.
const slack = time.Minute

// expiry is when the server removes what expires; empty for never.
func expiry(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Add(slack).UnixMilli(), 10)
}

func noPage(page string) error {
	return &protocol.ConfigError{What: "page",
		Problem: fmt.Sprintf("redisstore: %q is none: pass what the page before returned as Next", page)}
}
