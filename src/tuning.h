/* SPDX-License-Identifier: MIT */
/*
 * Which variant, and which numbers?
 *
 * Records (records.h) come from the user's file and from the shipped defaults.
 *
 * The device field is `*` or any of kind= arch= device= driver= type= (cpu, gpu); the class field is `*` or any of the
 * class's own words (wd_class_text). A record speaks for a call if everything it says is true of it. The most exact
 * device wins (driver, device, arch, kind or type, `*`), then the record that says more about the class, then the later
 * line; the user's file goes before the shipped one. Where no record speaks, the model does: the first variant that
 * refuses nothing, with numbers from wd_caps.
 */
#ifndef WD_TUNING_H
#define WD_TUNING_H

#include "op.h"
#include "records.h"
#include "text.h"

enum wd_origin { WD_FROM_USER, WD_FROM_SHIPPED, WD_FROM_MODEL, WD_FROM_MEASURED };

/* A variant with its numbers, and why. */
struct wd_choice {
    const struct wd_variant *variant;
    int param[WD_MAX_PARAMS];
    enum wd_origin source;
    char reason[192]; /* "user file line 12: ..." */
};

enum { WD_MAX_CHOICES = 12 };

struct wd_tuning {
    struct wd_records user, shipped;
    char *user_file; /* where the user's records are, or would be; NULL: nowhere */
    const struct wd_caps *caps;
    const struct wd_log *log;
};

/** Where the user's tuning file lies for these members of wd_context_desc; NULL: nowhere. free() it. */
char *wd_tuning_place(const char *tuning_file, const char *cache_dir);

/** Loads the shipped records and, if `user_file` is not NULL and exists, the user's. */
wd_status wd_tuning_init(struct wd_tuning *tuning, const struct wd_caps *caps, const char *user_file,
                         const struct wd_log *log);
void wd_tuning_fini(struct wd_tuning *tuning);

/** Choices for a problem in order of preference: records, then the model's numbers for each variant that refuses
 *  nothing. Returns how many (0: every variant refused). `refusals`, if not NULL, gets a line for each choice
 *  that was passed over. */
size_t wd_tuning_choices(const struct wd_tuning *tuning, const struct wd_problem *p,
                         struct wd_choice choice[WD_MAX_CHOICES], struct wd_text *refusals);

/** The model's numbers for each variant that refuses nothing, best first; at most `room`. Returns how many. `refusals`
 *  as above. */
size_t wd_tuning_models(const struct wd_caps *caps, const struct wd_problem *p, struct wd_choice *choice, size_t room,
                        struct wd_text *refusals);

/** The model's numbers for one variant within `caps` (which may be narrower than the device: see launch.c).
 *  False, with the reason, if it refuses. */
bool wd_tuning_model(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_variant *variant,
                     struct wd_choice *choice);

/** Does this choice respect the device's limits and the variant's own rules? NULL, or why not (static text). */
const char *wd_choice_fault(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_choice *choice);

/** The words of a problem's class: "x=f32 q=e4m3 s=f32 s_layout=row group=128 vec=16 size=13". */
void wd_class_text(const struct wd_problem *p, struct wd_text *text);

/** What a record of this very device and driver says about it: "device=\"...\" driver=\"...\"". */
void wd_device_text(const struct wd_caps *caps, struct wd_text *text);

/** "gpu local=256 inflight=4" */
void wd_choice_text(const struct wd_choice *choice, struct wd_text *text);

size_t wd_num_params(const struct wd_variant *variant);

/** Which power-of-four class the size of a call falls in. */
unsigned wd_size_class(const struct wd_problem *p);

#endif
