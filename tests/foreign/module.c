/*
 * A module with a data type of its own: a text. It stands for all modules: to a server, what a module keeps in a key is
 * something that no command but the module's own can read.
 *
 * FOREIGN.SET key text    makes such a key
 *
 * What the server offers is declared by hand, as far as it is used, since its header comes with no package. Nothing of a C
 * library is used either: a server that was brought from elsewhere has another one.
 */
#include <stdint.h>

typedef struct Context Context;
typedef struct Text Text;
typedef struct File File;
typedef struct Key Key;
typedef struct Type Type;

/* Version 3 of these methods, that of Redis 6.2: the first in which a key can be copied. */
typedef struct {
    uint64_t version;
    void *(*load)(File *, int);
    void (*save)(File *, void *);
    void (*rewrite)(void *, Text *, void *);
    uint64_t (*size)(const void *);
    void (*digest)(void *, void *);
    void (*free)(void *);
    int (*load_beside)(File *, int, int);
    void (*save_beside)(File *, int);
    int when_beside;
    uint64_t (*effort)(Text *, const void *);
    void (*unlink)(Text *, const void *);
    void *(*copy)(Text *, Text *, const void *);
    int (*defragment)(void *, Text *, void **);
} Methods;

static int (*attributes)(Context *, const char *, int, int);
static int (*command)(Context *, const char *, int (*)(Context *, Text **, int), const char *, int, int, int);
static Type *(*data_type)(Context *, const char *, int, Methods *);
static Key *(*open_key)(Context *, Text *, int);
static void (*close_key)(Key *);
static int (*set_value)(Key *, Type *, void *);
static Text *(*copy_text)(Context *, const Text *);
static void (*free_text)(Context *, Text *);
static Text *(*load_text)(File *);
static void (*save_text)(File *, Text *);
static int (*reply)(Context *, const char *);
static int (*wrong_arity)(Context *);

static Type *type;

static void *load(File *file, int version) { (void)version; return load_text(file); }
static void save(File *file, void *text) { save_text(file, text); }
static void release(void *text) { free_text(0, text); }
static void *copy(Text *from, Text *to, const void *text) { (void)from; (void)to; return copy_text(0, text); }

static int set(Context *context, Text **words, int count) {
    if (count != 3) return wrong_arity(context);
    Key *key = open_key(context, words[1], 1 | 2); /* to read and to write */
    set_value(key, type, copy_text(0, words[2]));
    close_key(key);
    return reply(context, "OK");
}

int RedisModule_OnLoad(Context *context, Text **words, int count) {
    (void)words, (void)count;
    /* A context begins with the function that finds the others by name. */
    int (*find)(const char *, void *) = *(int (**)(const char *, void *))context;
    if (find("RedisModule_SetModuleAttribs", &attributes) || find("RedisModule_CreateCommand", &command) ||
        find("RedisModule_CreateDataType", &data_type) || find("RedisModule_OpenKey", &open_key) ||
        find("RedisModule_CloseKey", &close_key) || find("RedisModule_ModuleTypeSetValue", &set_value) ||
        find("RedisModule_CreateStringFromString", &copy_text) || find("RedisModule_FreeString", &free_text) ||
        find("RedisModule_LoadString", &load_text) || find("RedisModule_SaveString", &save_text) ||
        find("RedisModule_ReplyWithSimpleString", &reply) || find("RedisModule_WrongArity", &wrong_arity))
        return 1;
    attributes(context, "foreign", 1, 1);
    Methods methods = {.version = 3, .load = load, .save = save, .free = release, .copy = copy};
    type = data_type(context, "foreign-1", 1, &methods); /* nine characters, no more and no fewer */
    if (!type) return 1;
    return command(context, "foreign.set", set, "write deny-oom", 1, 1, 1);
}
