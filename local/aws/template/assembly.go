package template

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Stack is a template that is deployed under a name, with the files that its resources name.
type Stack struct {
	Name     string
	Template *Template
	// Assets are folders and archives, by the key of the object that they are uploaded as.
	Assets map[string]string
	// Folder is that of the template's file, to which the metadata of its assets is relative.
	Folder string
	needs  []string // stacks that are deployed before
}

const manifestFile = "manifest.json"

// manifest is what cdk synth writes into the folder of a cloud assembly.
type manifest struct {
	Artifacts map[string]struct {
		Type         string
		Dependencies []string
		Properties   struct {
			TemplateFile, StackName, File, DirectoryName string
		}
	}
}

// assetFile lists what is uploaded for a stack.
type assetFile struct {
	Files map[string]struct {
		Source       struct{ Path string }
		Destinations map[string]struct{ ObjectKey string }
	}
}

// Open reads what a path names: a cloud assembly, which is the folder that cdk synth writes, the file of one template,
// or a folder of such files. The stacks come in the order in which they are deployed, those of files in that of their
// names.
func Open(path string) ([]Stack, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: name a template, or run cdk synth first and name what it writes, usually cdk.out", err)
	}
	files := []string{path}
	if info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(path, "*.template.*")) // a bad pattern is its only error
	}
	if _, err := os.Stat(filepath.Join(path, manifestFile)); err != nil && len(files) > 0 {
		return ofFiles(files)
	}
	all := map[string]Stack{}
	if err := open(path, all); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no stacks", path)
	}
	needs := map[string][]string{}
	for id, s := range all {
		needs[id] = slices.Sorted(slices.Values(s.needs))
	}
	order, _ := sorted(needs)
	var stacks []Stack
	for _, id := range order {
		if s, ok := all[id]; ok {
			stacks = append(stacks, s)
		}
	}
	return stacks, nil
}

// ofFiles are the stacks of templates' files.
func ofFiles(files []string) (stacks []Stack, err error) {
	for _, path := range files {
		t, err := Read(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		for ext := filepath.Ext(name); ext != ""; ext = filepath.Ext(name) {
			name = name[:len(name)-len(ext)]
		}
		stacks = append(stacks, Stack{Name: name, Template: t, Folder: filepath.Dir(path)})
	}
	return stacks, nil
}

// open adds the stacks of an assembly, and of those that are part of it, by their artifacts' ids.
func open(folder string, all map[string]Stack) error {
	var m manifest
	if err := readJSON(filepath.Join(folder, manifestFile), &m); err != nil {
		return fmt.Errorf("%s is no cloud assembly: %w", folder, err)
	}
	assets := map[string]string{}
	for _, a := range m.Artifacts {
		switch a.Type {
		case "cdk:cloud-assembly":
			if err := open(filepath.Join(folder, a.Properties.DirectoryName), all); err != nil {
				return err
			}
		case "cdk:asset-manifest":
			var files assetFile
			if err := readJSON(filepath.Join(folder, a.Properties.File), &files); err != nil {
				return err
			}
			for _, f := range files.Files {
				for _, to := range f.Destinations {
					assets[to.ObjectKey] = filepath.Join(folder, f.Source.Path)
				}
			}
		}
	}
	for id, a := range m.Artifacts {
		if a.Type != "aws:cloudformation:stack" {
			continue
		}
		t, err := Read(filepath.Join(folder, a.Properties.TemplateFile))
		if err != nil {
			return err
		}
		all[id] = Stack{Name: cmp.Or(a.Properties.StackName, id), Template: t, Assets: assets, Folder: folder,
			needs: a.Dependencies}
	}
	return nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// sorted are the names, each after what it needs, as far as they do not need each other. A circle is a way from a name
// back to it; nil if there is none.
func sorted(needs map[string][]string) (order, circle []string) {
	done := map[string]bool{}
	var way []string
	var visit func(name string)
	visit = func(name string) {
		if at := slices.Index(way, name); at >= 0 && circle == nil {
			circle = append(slices.Clone(way[at:]), name)
		}
		if done[name] {
			return
		}
		done[name], way = true, append(way, name)
		for _, next := range needs[name] {
			visit(next)
		}
		way, order = way[:len(way)-1], append(order, name)
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		visit(name)
	}
	return order, circle
}
