package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/casstore"
)

// driver implements [casstore.Driver].
type driver struct {
	client valkey.Client
	keys   keys
}

//go:embed write.lua
var writeLua string

// write makes a change. It is sent by its digest, and whole to a server that does not know it.
var write = valkey.NewLuaScript(writeLua)

// partField begins the name of the field with a part of a row.
const partField = "part:"

// read returns a command that only reads, but goes to the master whatever the client does with such ones.
func (d driver) read(name, key string, args ...string) valkey.Completed {
	return d.client.B().Arbitrary(name).Keys(key).Args(args...).Build()
}

func (d driver) Write(ctx context.Context, c casstore.Change) (met casstore.Row, written bool, err error) {
	if c.Unit != nil {
		return met, false, errors.ErrUnsupported
	}
	group := casstore.Group(c.Row.ID)
	version, due := "0", ""
	if c.Row.Data != nil {
		version = strconv.FormatInt(c.Row.Version, 10)
		if !c.Due.IsZero() {
			due = dueName(c.Shard, c.Due.UnixMilli(), c.Row.ID)
		}
	}
	// While a slot moves, a change of several keys is refused if one of them is not there.
	keys := []string{d.keys.row(c.Row.ID)}
	if c.Seen != 0 || due != "" || c.Entry != nil {
		keys = append(keys, d.keys.due(group))
	}
	args := make([]string, 0, 13+len(c.Drop)+2*len(c.Put))
	args = append(args, strconv.FormatInt(c.Seen, 10), version, string(c.Row.Data), string(c.Row.Body), due,
		expiry(c.Expires))
	if e := c.Entry; e != nil {
		keys = append(keys, d.keys.changes(group), d.keys.change(group, e.ID, e.Name))
		n := entryNames(e)
		args = append(args, n.ofRecord, n.ofShard, n.expires, string(e.Data), expiry(e.Expires))
	} else {
		args = append(args, "", "", "", "", "")
	}
	args = append(args, strconv.Itoa(len(c.Drop)))
	for _, name := range c.Drop {
		args = append(args, partField+name)
	}
	for name, data := range c.Put {
		args = append(args, partField+name, string(data))
	}
	got, err := write.Exec(ctx, d.client, keys, args).AsStrSlice()
	switch {
	case err != nil:
		return met, false, failed(err, true)
	case len(got) == 0:
		return met, true, nil
	}
	return row(c.Row.ID, got), false, nil
}

// row is a row of its version, data and body. One of another program, or without its version, cannot be read.
func row(id string, got []string) casstore.Row {
	n, err := strconv.ParseInt(got[0], 10, 64)
	switch {
	case err != nil:
		return casstore.Row{ID: id, Version: -1}
	case n == 0:
		return casstore.Row{}
	}
	return casstore.Row{ID: id, Version: n, Data: []byte(got[1]), Body: []byte(got[2])}
}

func (d driver) Read(ctx context.Context, id string) (casstore.Row, error) {
	return rowOf(id, d.client.Do(ctx, d.readRow(id)))
}

func (d driver) readRow(id string) valkey.Completed {
	return d.read("HMGET", d.keys.row(id), "version", "data", "body")
}

// rowOf is a row that was read.
func rowOf(id string, r valkey.ValkeyResult) (casstore.Row, error) {
	got, err := r.AsStrSlice() // "" of what is not there
	if err != nil {
		return casstore.Row{}, failed(err, false)
	}
	if got[0] == "" && got[1] == "" {
		return casstore.Row{}, nil
	}
	return row(id, got), nil
}

func (d driver) Part(ctx context.Context, id, name string) ([]byte, error) {
	data, err := d.client.Do(ctx, d.read("HGET", d.keys.row(id), partField+name)).AsBytes()
	if valkey.IsValkeyNil(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failed(err, false)
	}
	return data, nil
}

func (d driver) Due(ctx context.Context, shard int, until time.Time, after *casstore.Place, limit int) (
	[]casstore.Place, error) {
	from, to := "["+number(shardDigits, int64(shard)), "("+dueName(shard, until.UnixMilli()+1, "")
	if after != nil {
		from = "(" + dueName(shard, after.Due.UnixMilli(), after.ID)
	}
	names, err := d.names(ctx, d.keys.due, casstore.DueGroups(shard), from, to, limit)
	all := make([]casstore.Place, 0, len(names))
	for _, name := range names {
		at, err := parseDue(name)
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return all, err
}

// names lists names that are in the sets of groups, in their order.
func (d driver) names(ctx context.Context, key func(group int) string, groups []int, from, to string, limit int) (
	all []string, err error) {
	cmds := make([]valkey.Completed, len(groups))
	for i, g := range groups {
		cmds[i] = d.read("ZRANGE", key(g), from, to, "BYLEX", "LIMIT", "0", strconv.Itoa(limit))
	}
	for _, r := range d.client.DoMulti(ctx, cmds...) {
		names, err := r.AsStrSlice()
		if err != nil {
			return nil, failed(err, false)
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return all[:min(len(all), limit)], nil
}

func (d driver) Entries(ctx context.Context, q casstore.EntryQuery) (all []casstore.Entry, next string, err error) {
	groups, from, to, parse := []int{casstore.Group(q.ID)}, "["+recordOf(q.ID), "("+recordOf(q.ID)+"~", parseOfRecord
	if q.ID == "" {
		groups, parse = casstore.EntryGroups(q.Shard), parseOfShard
		from, to = "["+shardOf(q.Shard, q.From), "("+shardOf(q.Shard, q.To)
	}
	if q.Page != "" {
		if _, err := parse(q.Page); err != nil {
			return nil, "", noPage(q.Page)
		}
		from = "(" + q.Page
	}
	names, err := d.names(ctx, d.keys.changes, groups, from, to, q.Limit)
	if err != nil || len(names) == 0 {
		return nil, "", err
	}
	cmds := make([]valkey.Completed, len(names))
	for i, name := range names {
		e, err := parse(name)
		if err != nil {
			return nil, "", err
		}
		all = append(all, e)
		cmds[i] = d.read("GET", d.keys.change(casstore.Group(e.ID), e.ID, e.Name))
	}
	for i, r := range d.client.DoMulti(ctx, cmds...) {
		data, err := r.AsBytes()
		if err != nil && !valkey.IsValkeyNil(err) {
			return nil, "", failed(err, false)
		}
		all[i].Data = data
	}
	if len(names) == q.Limit {
		next = names[len(names)-1]
	}
	expired := func(e casstore.Entry) bool { return e.Data == nil }
	return slices.DeleteFunc(all, expired), next, nil
}

// RemoveExpired removes nothing: Redis does, and each new change removes names of changes that have expired.
func (d driver) RemoveExpired(context.Context, time.Time, int) (int, error) { return 0, nil }
