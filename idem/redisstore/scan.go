package redisstore

import (
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Scan lists the rows of one node after the other. A page may have fewer than the limit, also none. Where it begins is
// a node, its cursor, and the id after which to go on there, if what is at the cursor does not fit into a page.
func (d driver) Scan(ctx context.Context, segment, segments int, after string, limit int) (
	rows []casstore.Row, next string, err error) {
	nodes := d.client.Nodes()
	p := strings.SplitN(after, " ", 3)
	switch {
	case after == "":
		node, err := nextMaster(ctx, nodes, "")
		if err != nil {
			return nil, "", err
		}
		p = []string{node, "0", ""}
	case len(p) != 3:
		return nil, "", noPage(after)
	case nodes[p[0]] == nil:
		return nil, "", &protocol.StoreError{Err: fmt.Errorf("redisstore: there is no node %s any more: scan again", p[0])}
	}
	node, cursor, last := p[0], p[1], p[2]
	var ids []string
	for next == "" && node != "" {
		found, goOn, err := d.scan(ctx, nodes[node], cursor, limit-len(ids), func(id string) bool {
			return id > last && int(crc32.ChecksumIEEE([]byte(id))%uint32(segments)) == segment
		})
		if err != nil {
			return nil, "", err
		}
		ids = append(ids, found...)
		if goOn != "" {
			next = node + " " + goOn
			break
		}
		if node, err = nextMaster(ctx, nodes, node); err != nil {
			return nil, "", err
		}
		if cursor, last = "0", ""; node != "" && len(ids) == limit {
			next = node + " 0 "
		}
	}
	rows, err = d.rows(ctx, ids)
	return rows, next, err
}

// scan returns ids of rows on a node, and where to go on there; empty for no more. A node returns some more than it is
// asked for. If these are too many it is asked for fewer, down to those that it cannot tell apart.
func (d driver) scan(ctx context.Context, on valkey.Client, cursor string, limit int, want func(id string) bool) (
	ids []string, next string, err error) {
	for count := (limit + 1) / 2; ; count /= 2 {
		cmd := on.B().Arbitrary("SCAN", cursor, "MATCH", d.keys.all(), "COUNT", strconv.Itoa(count)).Build()
		found, err := on.Do(ctx, cmd).AsScanEntry()
		if err != nil {
			return nil, "", failed(err, false)
		}
		ids = ids[:0]
		for _, key := range found.Elements {
			if id := key[len(d.keys.rows(0)):]; want(id) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		switch {
		case len(ids) > limit && count > 1:
		case len(ids) > limit:
			return ids[:limit], cursor + " " + ids[limit-1], nil
		case found.Cursor != 0:
			return ids, fmt.Sprintf("%d ", found.Cursor), nil
		default:
			return ids, "", nil
		}
	}
}

func (d driver) rows(ctx context.Context, ids []string) (rows []casstore.Row, err error) {
	cmds := make([]valkey.Completed, len(ids))
	for i, id := range ids {
		cmds[i] = d.readRow(id)
	}
	for i, r := range d.client.DoMulti(ctx, cmds...) {
		row, err := rowOf(ids[i], r)
		if err != nil {
			return nil, err
		}
		if row.Version != 0 { // it may have expired
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// nextMaster is the node with rows that comes after a node; empty for none.
func nextMaster(ctx context.Context, nodes map[string]valkey.Client, after string) (string, error) {
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		if node <= after {
			continue
		}
		role, err := nodes[node].Do(ctx, nodes[node].B().Role().Build()).ToArray()
		if err != nil {
			return "", failed(err, false)
		}
		if is, _ := role[0].ToString(); is == "master" || len(nodes) == 1 {
			return node, nil
		}
	}
	return "", nil
}
