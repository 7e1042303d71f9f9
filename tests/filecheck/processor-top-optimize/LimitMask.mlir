// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// A Softmax of masked numbers reads them limited to -64 from below, because its exponential is a table.
// WEIGHT mask = 0 0 0 -1000000000 -1000000000 -1000000000

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %mask = "top.Weight"() : () -> tensor<6xf32> loc("mask")
    %a = "top.Add"(%x, %mask) : (tensor<2x4x6xf32>, tensor<6xf32>) -> tensor<2x4x6xf32> loc("a")
    %y = "top.Softmax"(%a) {axis = 2} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %mask = "top.Weight"() : () -> tensor<6xf32> loc("mask")
// CHECK-NEXT: %a = "top.Add"(%x, %mask) {{.*}} -> tensor<2x4x6xf32> loc("a")
// CHECK-NEXT: %0 = "top.MaxConst"(%a) {const_val = -6.400000e+01 : f64}{{.*}} -> tensor<2x4x6xf32> loc("y_limited")
// CHECK-NEXT: %y = "top.Softmax"(%0) {axis = 2 : si32}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
