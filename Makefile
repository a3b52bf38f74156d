# SPDX-License-Identifier: MIT
# WarpDrive: library, tool and tests. `make help` lists the targets.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
DEVICE  ?=
SANITIZE ?=

version = $(shell sed -n 's/^\#define WD_VERSION_$(1) \([0-9]*\)/\1/p' include/warpdrive.h)
MAJOR   := $(call version,MAJOR)
VERSION := $(MAJOR).$(call version,MINOR).$(call version,PATCH)

WARN     = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
CFLAGS  ?= -O2 -g
CXXFLAGS ?= -O2 -g
CPPFLAGS_ALL = -Iinclude -Isrc -D_POSIX_C_SOURCE=200809L $(CPPFLAGS)
CFLAGS_ALL = -std=c11 -fPIC -fvisibility=hidden -pthread $(WARN) $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer) $(CFLAGS)
LDFLAGS_ALL = -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(LDFLAGS)
LIBS     = -lOpenCL -lm

Q = $(if $(V),,@)
say = $(if $(V),,@printf '  %-4s %s\n' '$(1)' '$(2)')

lib_src   := $(wildcard src/*.c)
lib_obj   := $(lib_src:%.c=$(BUILD)/%.o) $(BUILD)/embedded.o
embedded  := $(sort $(wildcard cl/*.cl)) cl/defaults.tune
tool_src  := $(filter-out tools/embed.c tools/example_%.c tools/baseline_%.c,$(wildcard tools/*.c))
tool_obj  := $(tool_src:%.c=$(BUILD)/%.o)
test_src  := $(filter-out tests/test_fake.c,$(wildcard tests/test_*.c))
test_bin  := $(test_src:%.c=$(BUILD)/%)
examples  := $(patsubst tools/%.c,$(BUILD)/tools/%,$(wildcard tools/example_*.c)) \
             $(patsubst tools/%.cpp,$(BUILD)/tools/%,$(wildcard tools/example_*.cpp))

static_lib := $(BUILD)/libwarpdrive.a
shared_lib := $(BUILD)/libwarpdrive.so.$(VERSION)
tool       := $(BUILD)/warpdrive

PATTERN ?=
BUDGET  ?= 1800
DTYPES  ?= f32,bf16

.PHONY: all lib examples run test tests test-grid deps bench-cpu tune-defaults install uninstall format clean help
.DEFAULT_GOAL := all

## all: library, tool and examples
all: lib $(tool) examples

## lib: the static and the shared library
lib: $(static_lib) $(shared_lib)

## examples: the programs that users copy from
examples: $(examples)

## run: install what is missing, build, run every operation on the best device (or DEVICE=name), check, print a table
run: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(tool) demo $(if $(DEVICE),--device '$(DEVICE)')

## test: install what is missing, build and run all tests
test: deps
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tests/run.sh $(BUILD)

## tests: build the tests without running them
tests: $(test_bin) $(BUILD)/tests/test_fake $(BUILD)/tests/npycmp $(BUILD)/tests/offline

## test-grid: gdn_forward on its whole grid of shapes, types and gates (hours; goes on where it stopped)
test-grid: deps
	$(Q)$(MAKE) --no-print-directory $(BUILD)/tests/test_gdn_grid
	$(Q)tests/grid.sh $(BUILD)

## deps: install OpenCL loader, headers, PoCL, cmocka and jansson where they are missing (Debian, Ubuntu)
deps:
	$(Q)tools/install-deps.sh

$(BUILD)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%.o: CPPFLAGS_ALL += -Itools -DTEST_DATA='"$(CURDIR)/tests/data"' -DTEST_TOOL='"$(abspath $(tool))"'

$(BUILD)/tools/embed: tools/embed.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) -std=c11 $(WARN) -O1 -o $@ $<

$(BUILD)/embedded.c: $(BUILD)/tools/embed $(embedded)
	$(call say,GEN,$@)
	$(Q)$< $@ $(embedded)

$(BUILD)/embedded.o: $(BUILD)/embedded.c
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -c -o $@ $<

$(static_lib): $(lib_obj)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(shared_lib): $(lib_obj) src/warpdrive.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,-soname,libwarpdrive.so.$(MAJOR) -Wl,--version-script=src/warpdrive.map \
	    -Wl,--no-undefined -o $@ $(lib_obj) $(LIBS)
	$(Q)ln -sf $(@F) $(BUILD)/libwarpdrive.so.$(MAJOR) && ln -sf $(@F) $(BUILD)/libwarpdrive.so

# `warpdrive bench` reads JSON; the library needs none of it.
$(tool) $(BUILD)/tests/test_bench: LIBS += -ljansson
$(tool): $(tool_obj) $(static_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

$(BUILD)/tests/test_bench: $(patsubst %,$(BUILD)/tools/%.o,bench bench_json bench_compare bench_plot verdict json cli)

$(BUILD)/tests/test_models: $(patsubst %,$(BUILD)/tools/%.o,cases shape cli json)

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(BUILD)/tools/npy.o $(static_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ -lcmocka $(LIBS)

# The fake driver takes libOpenCL's place.
$(BUILD)/tests/test_fake: $(BUILD)/tests/test_fake.o $(BUILD)/tests/fake_cl.o $(static_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ -lcmocka -lm

$(BUILD)/tests/npycmp: $(BUILD)/tests/npycmp.o $(BUILD)/tools/npy.o $(static_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

# What offline compilers are given: tests/offline.sh.
$(BUILD)/tests/offline: $(BUILD)/tests/offline.o $(patsubst %,$(BUILD)/tools/%.o,cases shape cli json) $(static_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

# Examples see the public header only.
$(BUILD)/tools/example_%: tools/example_%.c $(static_lib) Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -Iinclude -std=c11 $(WARN) $(CFLAGS) -o $@ $< $(static_lib) $(LDFLAGS_ALL) $(LIBS)

$(BUILD)/tools/example_%: tools/example_%.cpp $(static_lib) Makefile
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -Iinclude -std=c++17 $(WARN) $(CXXFLAGS) -o $@ $< $(static_lib) $(LDFLAGS_ALL) $(LIBS)

## bench-cpu: every operation against plain C with OpenMP and OpenBLAS, in one run
bench-cpu: deps
	$(Q)tools/install-deps.sh libopenblas-pthread-dev
	$(Q)$(MAKE) --no-print-directory $(BUILD)/bench_cpu
	$(Q)POCL_AFFINITY=1 OMP_PROC_BIND=true OMP_WAIT_POLICY=passive $(BUILD)/bench_cpu $(if $(PATTERN),'$(PATTERN)')

$(BUILD)/bench_cpu: $(wildcard tools/baseline/*.[ch]) $(static_lib)
	$(call say,CC,tools/baseline)
	$(Q)$(CC) $(CPPFLAGS_ALL) -std=c11 $(WARN) -O3 -march=native -fopenmp -o $@ $(filter %.c,$^) $(static_lib) \
	    -lopenblas $(LIBS) -pthread

## tune-defaults: tune DEVICE for BUDGET seconds, and put what is faster than the model into cl/defaults.tune
tune-defaults: all
	$(Q)WARPDRIVE_TUNING_FILE=$(abspath $(BUILD))/defaults.tune $(tool) tune --dtype $(DTYPES) --budget $(BUDGET) \
	    --export cl/defaults.tune $(if $(DEVICE),--device '$(DEVICE)')

## install: header, libraries, pkg-config file and tool into DESTDIR and PREFIX
install: all
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/bin
	install -m 644 include/warpdrive.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 $(static_lib) $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(shared_lib) $(DESTDIR)$(PREFIX)/lib/
	ln -sf libwarpdrive.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libwarpdrive.so.$(MAJOR)
	ln -sf libwarpdrive.so.$(MAJOR) $(DESTDIR)$(PREFIX)/lib/libwarpdrive.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' src/warpdrive.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/warpdrive.pc
	install -m 755 $(tool) $(DESTDIR)$(PREFIX)/bin/

## uninstall: remove what install put there
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/include/warpdrive.h $(DESTDIR)$(PREFIX)/lib/libwarpdrive.* \
	    $(DESTDIR)$(PREFIX)/lib/pkgconfig/warpdrive.pc $(DESTDIR)$(PREFIX)/bin/warpdrive

## format: lay out all C by .clang-format
format:
	clang-format -i include/*.h src/*.[ch] tools/*.[ch] tools/baseline/*.[ch] tests/*.[ch]

## clean: remove everything built
clean:
	rm -rf $(BUILD)

## help: this list
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST) | awk -F': ' '{ printf "  make %-13s %s\n", $$1, $$2 }'

-include $(lib_obj:.o=.d) $(tool_obj:.o=.d) $(test_bin:=.d) $(BUILD)/tests/fake_cl.d
