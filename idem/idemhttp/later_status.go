package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/pathtemplate"
	"github.com/idem-go/idempotency/idem/later"
)

// statusMethods are what the path of a status can be asked with.
var statusMethods = []string{http.MethodGet, http.MethodHead, http.MethodDelete}

func (c *laters) asks(r *Request) string {
	if l, _ := c.asked(r); l != nil {
		return l.Status
	}
	return ""
}

// asked returns the route whose status the request is about, and the id; nil if it is about none.
func (c *laters) asked(r *Request) (*laterRoute, string) {
	if !slices.Contains(statusMethods, strings.ToUpper(r.Method)) {
		return nil, ""
	}
	id := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
	if l := c.byStatus[r.Route]; l != nil {
		return l, id
	}
	if r.Route != "" && !strings.HasSuffix(r.Route, "/") && !isRest(r.Route) {
		return nil, "" // the gateway has matched a template of its own
	}
	var best string
	var found *laterRoute
	for template, l := range c.byStatus {
		rank, ok := pathtemplate.Match(r.Path, template, isLiteral)
		if rank += template; ok && (found == nil || rank < best) {
			best, found = rank, l
		}
	}
	return found, id
}

func (c *laters) status(ctx context.Context, r *Request) (*Response, error) {
	l, id := c.asked(r)
	tenant, why, err := callerOf(ctx, r, l.Tenant)
	if err != nil {
		return nil, err
	}
	var res *Response
	if tenant == "" || l.op.Key(tenant, "k").Err() != nil {
		res = c.refusal(ctx, r, &situation{code: CodeTenantMissing, why: why})
	} else if strings.EqualFold(r.Method, http.MethodDelete) {
		res, err = c.cancel(ctx, r, l, tenant, id)
	} else {
		out, asked := later.StatusOf(ctx, c.engine, l.op, tenant, id)
		res, err = c.progress(ctx, r, l, &out, asked)
	}
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(r.Method, http.MethodHead) {
		res.Body, res.Base64 = nil, false
	}
	return res, nil
}

func (c *laters) cancel(ctx context.Context, r *Request, l *laterRoute, tenant, id string) (*Response, error) {
	err := later.Cancel(ctx, c.engine, l.op, tenant, id)
	if err == nil {
		return c.plain(ctx, r, http.StatusNoContent, nil), nil
	}
	return c.progress(ctx, r, l, &idem.Outcome{}, err)
}

// refuseStatus finds the row for an error that only accepted work has.
func refuseStatus(err error) *situation {
	switch {
	case errors.Is(err, later.ErrNotAccepted):
		return &situation{code: CodeStatusNotFound}
	case errors.Is(err, later.ErrExpired):
		return &situation{code: CodeExpired}
	case errors.Is(err, later.ErrBegun):
		return &situation{code: CodeBegun}
	}
	return nil
}
