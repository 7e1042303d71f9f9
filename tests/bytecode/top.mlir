module @net attributes {module.chip = "ALL", module.name = "net", module.platform = "ONNX", module.state = "TOP_F32", module.top_run_mode = "STATIC", module.weight_file = "net_top_f32_all_weight.npz"} {
  func.func @main(%arg0: tensor<1x3x4x4xf32> loc("in")) -> tensor<1x3x4x4xf32> {
    %0 = "top.Input"(%arg0) {do_preprocess = false} : (tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32> loc("in")
    %1 = "top.Relu"(%0) {relu_limit = -1.000000e+00 : f64} : (tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32> loc("relu")
    %2 = "top.Softmax"(%1) {axis = 1 : si32, log = false, beta = 1.0 : f64, round_mode = "HalfAwayFromZero"} : (tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32> loc("soft")
    return %2 : tensor<1x3x4x4xf32> loc("ret")
  } loc("main")
} loc("net")
