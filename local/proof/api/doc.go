// Package api holds the module's exported names: a change of what users can write
// fails its test until the change is accepted in testdata, where a reviewer sees it.
//
//	go test ./local/proof/api -update
package api
