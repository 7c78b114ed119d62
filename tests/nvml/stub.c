/* Stands in for NVIDIA's libnvidia-ml.so.1 where there is no driver, so that tests run the real
 * pynvml. What it tells stands in the file that RPM_NVML_STUB names (written by driver.py) and is
 * read anew at every call: a test can lose a GPU while a program is at work. One fact a line:
 *
 *     driver <version>            cuda <version>              init <code that nvmlInit answers>
 *     gpu <uuid> <memory MiB> <used MiB> <utilisation> <is MIG on> <capability> <code> <name ...>
 *     slice <uuid> <memory MiB> <used MiB> <name ...>         of the gpu above
 *     process <pid> <memory MiB>  client <pid> <memory MiB>   of the gpu or slice above
 *     power <milliwatts>                                      of the gpu above
 *
 * A gpu with a code other than 0 answers nothing but that code. Clients are processes of MPS.
 * Signatures and structures are those of NVIDIA's public nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9 };
enum { GPUS = 16, SLICES = 8, PROCESSES = 32 };

typedef void *device_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int instance, compute_instance;
} process_t;

typedef struct {
    char uuid[96], name[96];
    unsigned long long memory_mb, used_mb;
    unsigned int utilisation, power, is_split, major, minor;
    int code;
    int processes, clients;
    process_t process[PROCESSES], client[PROCESSES];
} unit_t;

typedef struct {
    char driver[80];
    int cuda, init, gpus, slices[GPUS];
    unit_t gpu[GPUS], slice[GPUS][SLICES];
} scenario_t;

static scenario_t now;

static void add_process(process_t *list, int *count, const char *line)
{
    unsigned int pid;
    unsigned long long mb;
    if (*count < PROCESSES && sscanf(line, "%*s %u %llu", &pid, &mb) == 2)
        list[(*count)++] = (process_t){pid, mb << 20, 0xffffffff, 0xffffffff};
}

static void read_line(const char *line, unit_t **unit)
{
    char word[16] = "";
    sscanf(line, "%15s", word);
    if (!strcmp(word, "driver")) {
        sscanf(line, "%*s %79s", now.driver);
    } else if (!strcmp(word, "cuda")) {
        sscanf(line, "%*s %d", &now.cuda);
    } else if (!strcmp(word, "init")) {
        sscanf(line, "%*s %d", &now.init);
    } else if (!strcmp(word, "gpu") && now.gpus < GPUS) {
        unit_t *gpu = *unit = &now.gpu[now.gpus++];
        sscanf(line, "%*s %95s %llu %llu %u %u %u.%u %d %95[^\n]", gpu->uuid, &gpu->memory_mb,
               &gpu->used_mb, &gpu->utilisation, &gpu->is_split, &gpu->major, &gpu->minor,
               &gpu->code, gpu->name);
    } else if (!strcmp(word, "slice") && now.gpus && now.slices[now.gpus - 1] < SLICES) {
        unit_t *slice = *unit = &now.slice[now.gpus - 1][now.slices[now.gpus - 1]++];
        sscanf(line, "%*s %95s %llu %llu %95[^\n]", slice->uuid, &slice->memory_mb,
               &slice->used_mb, slice->name);
    } else if (!strcmp(word, "power") && *unit) {
        sscanf(line, "%*s %u", &(*unit)->power);
    } else if (!strcmp(word, "process") && *unit) {
        add_process((*unit)->process, &(*unit)->processes, line);
    } else if (!strcmp(word, "client") && *unit) {
        add_process((*unit)->client, &(*unit)->clients, line);
    }
}

static int look(void)
{
    const char *path = getenv("RPM_NVML_STUB");
    FILE *source = path ? fopen(path, "r") : NULL;
    char line[512];
    unit_t *unit = NULL;
    if (!source)
        return DRIVER_NOT_LOADED;
    memset(&now, 0, sizeof now);
    while (fgets(line, sizeof line, source))
        read_line(line, &unit);
    fclose(source);
    return now.init;
}

/* Handles are numbers: 1.. for GPUs, 1000 + 100 * GPU + slice for slices. */
static int find(device_t handle, unit_t **unit)
{
    long number = (long)handle;
    int code = look();
    if (code)
        return code;
    if (number >= 1000) {
        int gpu = (int)(number - 1000) / 100, slice = (int)(number - 1000) % 100;
        if (gpu >= now.gpus || slice >= now.slices[gpu])
            return INVALID_ARGUMENT;
        *unit = &now.slice[gpu][slice];
        return now.gpu[gpu].code;
    }
    if (number < 1 || number > now.gpus)
        return INVALID_ARGUMENT;
    *unit = &now.gpu[number - 1];
    return (*unit)->code;
}

static int give(char *target, unsigned int length, const char *text)
{
    if (strlen(text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

static int list(process_t *found, int has, unsigned int *count, process_t *target)
{
    unsigned int room = *count;
    *count = has;
    if (!has)
        return SUCCESS;
    if (!target || room < (unsigned int)has)
        return INSUFFICIENT_SIZE;
    memcpy(target, found, has * sizeof *found);
    return SUCCESS;
}

#define ASK(handle) unit_t *unit; int code = find(handle, &unit); if (code) return code

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return look(); }
int nvmlInit_v2(void) { return look(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    int code = look();
    return code ? code : give(version, length, now.driver);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    int code = look();
    *version = now.cuda;
    return code;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    int code = look();
    *count = now.gpus;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *handle)
{
    ASK((device_t)(long)(index + 1));
    *handle = (device_t)(long)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetUUID(device_t handle, char *uuid, unsigned int length)
{
    ASK(handle);
    return give(uuid, length, unit->uuid);
}

int nvmlDeviceGetName(device_t handle, char *name, unsigned int length)
{
    ASK(handle);
    return give(name, length, unit->name);
}

int nvmlDeviceGetMemoryInfo(device_t handle, memory_t *memory)
{
    ASK(handle);
    memory->total = unit->memory_mb << 20;
    memory->used = unit->used_mb << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(device_t handle, unsigned int *milliwatts)
{
    ASK(handle);
    if ((long)handle >= 1000 || !unit->power)
        return NOT_SUPPORTED;
    *milliwatts = unit->power;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device_t handle, utilization_t *rates)
{
    ASK(handle);
    if ((long)handle >= 1000 || unit->is_split)
        return NOT_SUPPORTED;
    rates->gpu = unit->utilisation;
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device_t handle, int *major, int *minor)
{
    ASK(handle);
    *major = (int)unit->major;
    *minor = (int)unit->minor;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t handle, unsigned int *count, process_t *target)
{
    ASK(handle);
    return list(unit->process, unit->processes, count, target);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t handle, unsigned int *count,
                                               process_t *target)
{
    ASK(handle);
    if ((long)handle >= 1000)
        return NOT_SUPPORTED;
    return list(unit->client, unit->clients, count, target);
}

int nvmlDeviceGetMigMode(device_t handle, unsigned int *current, unsigned int *pending)
{
    ASK(handle);
    if (unit->major < 8)
        return NOT_SUPPORTED;
    *current = *pending = unit->is_split;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t handle, unsigned int *count)
{
    ASK(handle);
    *count = SLICES - 1;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t handle, unsigned int index, device_t *slice)
{
    ASK(handle);
    long gpu = (long)handle - 1;
    if ((int)index >= now.slices[gpu])
        return NOT_FOUND;
    *slice = (device_t)(1000 + 100 * gpu + (long)index);
    return SUCCESS;
}
