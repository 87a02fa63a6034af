/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures as PyTorch's own exceptions, without PyTorch's headers: its classes are found in the libc10.so of the
 * process by their symbols, and an object is made as the Itanium C++ ABI says. Where one of the symbols is missing
 * std::bad_alloc is thrown, which PyTorch turns into RuntimeError.
 */
#include <cxxabi.h>
#include <dlfcn.h>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "plug.h"

namespace {

/* Passed by value to the constructor: its members are c10::SourceLocation's. */
struct source_location {
	const char *function, *file;
	uint32_t line;
};

using constructor = void(void *self, source_location, std::string text);
using destructor = void(void *self);

/* Far larger than c10::Error (some 200 bytes), whose size the ABI does not tell. */
constexpr size_t OBJECT_BYTES = 2048;

/* What a class with virtual functions is by its symbols: the address of a virtual table is that of its third word,
 * and its first function is the destructor of a complete object. */
struct exception_class {
	constructor *construct;
	void **table;
	std::type_info *type;
};

bool find_class(const char *name, exception_class *out)
{
	void *c10 = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
	if (!c10)
		return false;
	std::string mangled(name);
	out->construct = reinterpret_cast<constructor *>(dlsym(c10,
		"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
	out->table = static_cast<void **>(dlsym(c10, ("_ZTV" + mangled).c_str()));
	out->type = static_cast<std::type_info *>(dlsym(c10, ("_ZTI" + mangled).c_str()));
	dlclose(c10);
	return out->construct && out->table && out->type;
}

} // namespace

void plug_throw(trz_status status, const char *text)
{
	bool memory = trz_torch_is_want_of_memory(status);
	exception_class wanted;
	/* PyTorch's users and their programs look for these words. */
	std::string message = (memory ? "CUDA out of memory. " : "terrazzo: ") + std::string(text);
	if (!find_class(memory ? "N3c1016OutOfMemoryErrorE" : "N3c105ErrorE", &wanted)) {
		if (memory)
			throw std::bad_alloc();
		throw std::runtime_error(message);
	}
	void *object = abi::__cxa_allocate_exception(OBJECT_BYTES);
	wanted.construct(object, {"trz_torch_alloc", "terrazzo", 0}, message);
	*static_cast<void ***>(object) = wanted.table + 2;
	abi::__cxa_throw(object, wanted.type, reinterpret_cast<destructor *>(wanted.table[2]));
}
