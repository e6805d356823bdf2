package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

func tokenCommand(fs *flag.FlagSet) func(context.Context, io.Writer) error {
	var tenant, cacheDir string
	fs.StringVar(&tenant, "tenant", defaultTenant, "the token's subject, which is the tenant")
	declareCache(fs, &cacheDir)
	return func(ctx context.Context, out io.Writer) error {
		if tenant == "" {
			return misuse("-tenant is empty")
		}
		n, err := running(ctx, cacheDir)
		if err != nil {
			return err
		}
		var token string
		if err := n.ask(ctx, http.MethodPost, "/tokens/"+url.PathEscape(tenant), nil, &token); err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, token)
		return err
	}
}
