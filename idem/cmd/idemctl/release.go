package main

import "context"

type releaseCmd struct {
	recordFlags
	manyFlags
	changeFlags
	stepFlags
	Again bool   `help:"Replace an earlier resolution."`
	Ref   string `placeholder:"TEXT" help:"The provider's reference, if there is one."`
}

func (c *releaseCmd) Run(ctx context.Context, s *session) error {
	return (&resolveCmd{
		recordFlags: c.recordFlags, manyFlags: c.manyFlags, changeFlags: c.changeFlags, stepFlags: c.stepFlags,
		To: "released", Again: c.Again, Ref: c.Ref,
	}).Run(ctx, s)
}
