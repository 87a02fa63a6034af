/* SPDX-License-Identifier: Apache-2.0
 *
 * Throws failures as PyTorch's own exceptions, without PyTorch's headers: finds its classes in the process's libc10.so
 * by their symbols, and makes an object as the Itanium C++ ABI says. If a symbol is missing, it throws std::bad_alloc
 * or std::runtime_error, which PyTorch turns into RuntimeError.
 */
#include <cxxabi.h>
#include <dlfcn.h>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "plug_throw.hpp"

namespace {

using constructor = void(void *function, void *self, const char *text);
using destructor = void(void *self);

/* Room for a c10::Error, which is far smaller (some 200 bytes): its size is not known here. */
constexpr size_t OBJECT_BYTES = 2048;

/* How to make a c10::Error. Its derived classes add nothing but their type, by which it is caught. */
struct exception_class {
	constructor *construct;
	void *function;
	std::type_info *type;
};

/* A symbol of a library that PyTorch has loaded; NULL: missing. */
void *find(const char *library, const char *symbol)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	void *found = handle ? dlsym(handle, symbol) : nullptr;
	if (handle)
		dlclose(handle);
	return found;
}

bool find_class(const char *type, exception_class *out)
{
	void *found = find("libc10.so", type);
	out->type = static_cast<std::type_info *>(found ? found : find("libc10_cuda.so", type));
	out->construct = construct_error;
	out->function = find("libc10.so",
		"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
	if (!out->function) {
		out->construct = plug_construct_older;
		out->function = find("libc10.so", "_ZN3c105ErrorC2ENS_14SourceLocationESs");
	}
	return out->function && out->type;
}

} // namespace

void plug_throw(trz_status status, const char *text)
{
	bool memory = trz_torch_is_want_of_memory(status);
	exception_class wanted;
	/* PyTorch's users and their programs look for these words. */
	std::string message = (memory ? "CUDA out of memory. " : "terrazzo: ") + std::string(text);
	if (!find_class(memory ? "_ZTIN3c1016OutOfMemoryErrorE" : "_ZTIN3c105ErrorE", &wanted)) {
		if (memory)
			throw std::bad_alloc();
		throw std::runtime_error(message);
	}
	void *object = abi::__cxa_allocate_exception(OBJECT_BYTES);
	wanted.construct(wanted.function, object, message.c_str());
	void **functions = *static_cast<void ***>(object);  /* the first is the destructor of a complete object */
	abi::__cxa_throw(object, wanted.type, reinterpret_cast<destructor *>(functions[0]));
}
